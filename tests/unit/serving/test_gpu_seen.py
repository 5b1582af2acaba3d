"""What NVIDIA's programs say of a GPU: that a server has lost it, and what it does."""

import os
from pathlib import Path

import pytest

from bundle_door.paths.page_data import read_gpus, read_queues
from bundle_serving.process import gpu

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


def test_a_driver_may_take_seconds_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nsleep 3\necho 'GPU 0: NVIDIA L4 (UUID: GPU-7a3c)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu.is_there()


# As Triton's metrics.cc names and describes them, and prometheus-cpp writes them.
METRICS = """\
# HELP nv_inference_pending_request_count Instantaneous number of pending requests per-model.
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="resnet50_trt",version="1"} 3
nv_inference_pending_request_count{model="resnet50_preprocessing",version="1"} 0
# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-7a3c-1"} 0.42
nv_gpu_utilization{gpu_uuid="GPU-7a3c-2"} 0
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-7a3c-1"} 24152899584
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-7a3c-1"} 3.1e+09
# HELP nv_gpu_power_usage GPU power usage in watts
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid="GPU-7a3c-1"} 55.217
# HELP nv_gpu_power_limit GPU power management limit in watts
# TYPE nv_gpu_power_limit gauge
nv_gpu_power_limit{gpu_uuid="GPU-7a3c-1"} 72
# HELP nv_energy_consumption GPU energy consumption in joules since the Triton Server started
# TYPE nv_energy_consumption counter
nv_energy_consumption{gpu_uuid="GPU-7a3c-1"} 1403.4
"""


def test_what_triton_tells_of_gpus() -> None:
    assert read_queues(METRICS) == {"resnet50_trt": 3}
    first, second = read_gpus(METRICS)
    assert first == {
        "uuid": "GPU-7a3c-1",
        "utilization": 0.42,
        "memory_total_bytes": 24152899584,
        "memory_used_bytes": 3.1e9,
        "power_usage": 55.217,
        "power_limit": 72,
    }
    assert second == {"uuid": "GPU-7a3c-2", "utilization": 0}
    assert read_gpus("") == [] and read_queues("") == {}
