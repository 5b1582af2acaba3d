"""How the keeper knows that a server has lost its GPU: by the words of NVIDIA's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle_serving import gpu

IN_STUB = "Failed to process the request(s) for model instance 'preprocessing_0_0', message: "
TORCH_OUT = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 14.7 GiB"
)


@pytest.mark.parametrize(
    ("told", "failed", "exhausted"),
    [
        ("in ensemble 'resnet50', unable to enqueue for inference resnet50_trt_0_0", True, False),
        (
            "unable to execute graph for inference resnet50_trt_0_0: unspecified launch failure",
            True,
            False,
        ),
        ("failed to copy data: an illegal memory access was encountered", True, False),
        ("unable to create stream: uncorrectable ECC error encountered", True, False),
        ("unable to get CUDA device: no CUDA-capable device is detected", True, False),
        # Of a model's own process, which is started anew with it.
        (f"{IN_STUB}CUDA error: device-side assert triggered", False, False),
        (
            f"{IN_STUB}cudaErrorIllegalAddress: an illegal memory access was encountered",
            False,
            False,
        ),
        (f"{IN_STUB}OutOfMemoryError: Out of memory allocating 512 bytes", False, True),
        (f"{IN_STUB}OutOfMemoryError: {TORCH_OUT}", False, True),
        ("failed to allocate 602112 bytes for tensor 'input': out of memory", False, True),
        # What a caller or a queue is at fault for.
        (f"{IN_STUB}not a JPEG; send one", False, False),
        ("Exceeds maximum queue size", False, False),
        ("unexpected shape for input 'input'", False, False),
    ],
)
def test_what_an_answer_says(told: str, failed: bool, exhausted: bool) -> None:
    assert (gpu.has_failed(told), gpu.is_exhausted(told)) == (failed, exhausted)


@pytest.mark.parametrize(
    ("told", "there", "why"),
    [
        ("GPU 0: NVIDIA L4 (UUID: GPU-7a3c)", True, None),
        (gpu.NVML_LOST, False, "has lost its GPU"),
        ("Failed to initialize NVML: Driver/library version mismatch", False, "version mismatch"),
        (
            "Unable to determine the device handle for GPU0: 0000:5F:00.0: Unknown Error",
            False,
            "device handle for GPU0",
        ),
        ("No devices were found", False, "No devices were found"),
        # Of a machine with nothing but the program.
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            False,
            None,
        ),
    ],
)
def test_what_its_program_says(
    told: str, there: bool, why: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "{told}"\nexit 9\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu.is_there() is there
    lost = gpu.why_lost()
    assert (why in lost) if lost and why else lost == why
    program.unlink()
    assert not gpu.is_there() and gpu.why_lost() is None
