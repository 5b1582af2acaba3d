"""A plan is built by trtexec, looked into, and put in place whole or not at all; on GPUs that can
take it. trtexec and nvidia-smi are the rehearsal's, with NVIDIA's parser and builder in them."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from scripts.artefacts import gpus
from scripts.artefacts.gpus import Gpu, choose_gpus, require_fit
from scripts.artefacts.manifest import Manifest
from scripts.base import files
from scripts.base.errors import UserError
from scripts.steps import plan
from tests.networks import needs_nvidias_builder, tiny
from tests.project import ROOT

REHEARSAL = ROOT / "tests" / "rehearsal"

RTX = Gpu("0", "NVIDIA GeForce RTX 4090", "8.9", "610.43.02", "24564 MiB", "GPU-4a1b0c6d-11")
A100 = Gpu("1", "NVIDIA A100-SXM4-80GB", "8.0", "550.54.15", "81920 MiB", "GPU-8932f937-21")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs come first on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "nvidia-smi", f'exec sh {REHEARSAL}/images/nvidia-smi "$@"')
    program(programs / "trtexec", f'exec {sys.executable} {REHEARSAL}/trtexec.py "$@"')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("REHEARSAL_TENSORRT", "11.1.0")
    monkeypatch.setenv("REHEARSAL_COMPUTE_CAPABILITY", "8.6")
    return programs


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def exported(folder: Path, precision: str, **how: Any) -> Path:
    """As an export leaves it that says it is of this precision."""
    onnx = folder / "onnx"
    onnx.mkdir(exist_ok=True)
    tiny(onnx / "model.onnx", **how)
    of = {"precision": precision, "source": "tiny"}
    manifest = Manifest(of, False, {}, {"sha256": files.sha256(onnx / "model.onnx")}, {})
    (onnx / "manifest.json").write_text(manifest.dump())
    return onnx


def build(onnx: Path) -> dict[str, Any]:
    out = onnx.parent / "plan"
    sizes = (("min", 1), ("opt", 2), ("max", 4))
    shapes = {f"{option}Shapes": f"input:{batch}x3x8x8" for option, batch in sizes}
    plan.main(onnx, onnx.parent / "timing", out, shapes)
    loaded: dict[str, Any] = json.loads((out / "manifest.json").read_text())
    return loaded


@needs_nvidias_builder
@pytest.mark.parametrize("version", ["10.16.1", "11.1.0"])
def test_the_precision_is_seen_in_both_spellings(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("REHEARSAL_TENSORRT", version)
    built = build(exported(tmp_path, "fp16"))
    assert 0 < built["precision"]["half layers"] < built["precision"]["layers"]
    assert not any("profilingVerbosity" in flag for flag in built["flags"])


@needs_nvidias_builder
def test_a_plan_is_built_anew_where_it_no_longer_fits(machine: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan"
    assert plan.why_build(out, {}) == "no plan yet"
    fits = build(exported(tmp_path, "fp16"))["identity"]
    assert plan.why_build(out, fits) is None
    # TensorRT would take another GPU's times without a word.
    (times,) = (tmp_path / "timing").iterdir()
    assert times.name == "11.1.0-nvidia-rehearsal-gpu-8.6.cache"
    changed = fits | {"TensorRT": "10.16.1", "compute capability": "9.0"}
    changes = "TensorRT: 11.1.0 -> 10.16.1; compute capability: 8.6 -> 9.0"
    assert plan.why_build(out, changed) == changes
    (out / "model.plan").write_bytes((out / "model.plan").read_bytes()[:-100])
    assert plan.why_build(out, fits) == "model.plan is not the file that was built"


@needs_nvidias_builder
def test_fp32_is_refused_where_fp16_was_promised(machine: Path, tmp_path: Path) -> None:
    before = build(exported(tmp_path, "fp16"))
    with pytest.raises(UserError, match="came out in fp32: none of its"):
        build(exported(tmp_path, "fp16", compute=TensorProto.FLOAT, batch="n"))
    assert json.loads((tmp_path / "plan" / "manifest.json").read_text()) == before
    shutil.rmtree(tmp_path / "plan")
    build(exported(tmp_path, "fp32", compute=TensorProto.FLOAT))  # somebody's own network


@needs_nvidias_builder
def test_layers_that_cannot_be_described_are_no_reason_to_refuse(
    machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (machine / "trtexec").rename(machine / "real")
    program(
        machine / "trtexec",
        f'case "$*" in *exportLayerInfo*) exit 1;; esac\nexec {machine}/real "$@"',
    )
    assert build(exported(tmp_path, "fp16"))["precision"] == {"half layers": 0, "layers": 0}
    assert "warning: its layers cannot be described" in capsys.readouterr().out


@needs_nvidias_builder
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"weights": np.float32}, "`input` type is Half but `kernel` is of type Float"),
        ({"cast": False}, "TensorRT does not support UINT8 types for intermediate tensors"),
    ],
)
def test_a_network_is_refused_in_nvidias_words(
    machine: Path, tmp_path: Path, how: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=f"trtexec failed: .*{reason}"):
        build(exported(tmp_path, "fp16", **how))
    assert not (tmp_path / "plan").exists()


@needs_nvidias_builder
def test_the_plan_is_for_the_gpu_that_serves(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REHEARSAL_GPUS", "NVIDIA A2/NVIDIA A16")
    with pytest.raises(UserError, match="GPUs differ"):
        build(exported(tmp_path, "fp16"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert build(exported(tmp_path, "fp16"))["gpu"]["name"] == "NVIDIA A16"


@pytest.mark.parametrize(
    ("layers", "counts"),
    [
        ([{"Outputs": [{"Format/Datatype": "Channel major FP16 format"}]}], (1, 1)),
        ([{"Outputs": [{"Datatype": "Half", "Format": "N/A"}]}, {"Outputs": []}], (1, 1)),
        ([{"Outputs": [{"Datatype": "BFloat16"}]}, {"Name": "none"}, "a name"], (0, 1)),
        (["names", "alone"], (0, 0)),
    ],
)
def test_halves_are_counted(layers: list[Any], counts: tuple[int, int]) -> None:
    assert plan.count_halves({"Layers": layers}) == counts


@pytest.mark.parametrize(
    "line",
    [
        "Cuda failure at common.h:108: CUDA driver version is insufficient",
        "Cannot find any available devices (GPUs)!",
    ],
)
def test_a_fault_of_cudas_is_told(line: str) -> None:
    """trtexec ends with it (common.h and sampleDevice.cpp of its source), without an "[E]"."""
    banner = "&&&& RUNNING TensorRT.trtexec [TensorRT v110100] [b106] # trtexec"
    assert plan.why_it_failed(f"{banner}\n[I] Start\n{line}\n") == line


def test_what_is_no_list_of_gpus_is_refused() -> None:
    (gpu,) = gpus.parse("0, NVIDIA GeForce RTX 4090, 8.9, 610.43.02, 24564 MiB, GPU-4a1b0c6d-11\n")
    assert gpu == RTX
    for text in ("", "No devices were found\n"):
        with pytest.raises(ValueError):
            gpus.parse(text)


def test_gpus_are_chosen_and_must_be_alike() -> None:
    twin = replace(RTX, index="2")
    assert choose_gpus([RTX, twin], "all") == [RTX, twin]
    assert choose_gpus([RTX, A100, twin], "2,0") == [twin, RTX]
    with pytest.raises(UserError) as refused:
        choose_gpus([RTX, A100, twin], "all")
    assert "GPUS=0,2 or GPUS=1" in refused.value.remedy
    with pytest.raises(UserError) as refused:  # with Compose alone, which does not read GPUS
        choose_gpus([RTX, A100], "all", "CUDA_VISIBLE_DEVICES")
    assert "CUDA_VISIBLE_DEVICES=0 or CUDA_VISIBLE_DEVICES=1" in refused.value.remedy
    with pytest.raises(UserError, match="names a GPU that this machine does not have: 3"):
        choose_gpus([RTX, twin], "0,3")
    # As CUDA reads them, and Kubernetes may write them.
    assert choose_gpus([RTX, A100], "GPU-8932f937-21") == [A100]
    assert choose_gpus([RTX, A100], "GPU-4a1b") == [RTX]
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=GPU-77 names a GPU that"):
        choose_gpus([RTX, A100], "GPU-77", "CUDA_VISIBLE_DEVICES")


def test_what_a_release_cannot_use_is_refused() -> None:
    assert require_fit(RTX, "26.07") is None
    old = replace(RTX, driver="570.86.10")
    with pytest.raises(UserError, match=r"driver 570.86.10 is older than 580, and .* CUDA 13"):
        require_fit(old, "26.07")
    assert require_fit(old, "25.07") is None
    assert "forward compatibility" in str(require_fit(A100, "26.07"))
    with pytest.raises(UserError, match=r"compute capability 7\.0"):
        require_fit(replace(A100, compute_capability="7.0"), "26.07")
    with pytest.raises(UserError, match="not a release"):
        require_fit(RTX, "latest")
