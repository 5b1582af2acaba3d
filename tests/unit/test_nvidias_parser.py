"""NVIDIA's own parser and builder take every network that the bundle exports for a GPU, with the
shapes of its recipe: those of TensorRT for RTX, which need no GPU."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scripts.base.paths import VENV
from scripts.recipes import cascade, places, text
from scripts.recipes.pipelines import RECIPES
from scripts.recipes.schema import Array, Cascade, Image, Text, load_as
from scripts.recipes.shapes import OPTIONS, of_pixels
from scripts.steps import adopt, export
from scripts.steps import places as export_places
from scripts.steps.texts import export as export_texts
from tests.networks import needs_nvidias_builder
from tests.project import ROOT

pytestmark = [needs_nvidias_builder, pytest.mark.long]

# What strong typing must run in half precision.
COMPUTE = ("CONVOLUTION", "MATRIX_MULTIPLY")
ARCHITECTURES = (
    *("resnet50", "mobilenet_v2", "efficientnet_b0", "vit_b_16", "convnext_tiny", "swin_t"),
)
OPT_BATCH = 32


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "rehearsal"))


def types_of(onnx: Path, shapes: Mapping[str, str]) -> set[str]:
    """The types that the network computes in, once it is parsed and built."""
    rtx, options = (importlib.import_module(name) for name in ("rtx", "trtexec_options"))
    said: list[str] = []
    network = rtx.Network(lambda severity, message: said.append(f"{severity} {message}"))
    assert network.parse(onnx), said
    found = options.profiles({f"--{name}": shapes[name] for name in OPTIONS})
    assert network.build(found, "8.6") is not None, said
    assert not [line for line in said if line.startswith("E")]
    return {each.outputs[0].type for each in network.layers() if each.kind in COMPUTE}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_networks_of_pictures(arch: str, tmp_path: Path) -> None:
    out, largest = tmp_path / "onnx", load_as(RECIPES / "resnet50.yaml", Image).batch.max
    words = ["--arch", arch, "--weights", "random", "--precision", "fp16"]
    export.main([*words, "--out", str(out)])
    crop = json.loads((out / "manifest.json").read_text())["transform"]["crop"]
    assert types_of(out / "model.onnx", of_pixels("input", crop, OPT_BATCH, largest)) == {"HALF"}
    if arch == "mobilenet_v2":  # which is the cascade's small network too
        shapes = cascade.shapes(load_as(RECIPES / "cascade.yaml", Cascade))
        assert types_of(out / "model.onnx", shapes) == {"HALF"}
    shutil.rmtree(out)


def test_places(tmp_path: Path) -> None:
    words = ["--weights", "random", "--precision", "fp16", "--out", str(tmp_path / "onnx")]
    export_places.main(words)
    shapes = places.shapes(load_as(RECIPES / "places365.yaml", Array))
    assert types_of(tmp_path / "onnx" / "model.onnx", shapes) == {"HALF"}


@pytest.mark.skipif(not (VENV / "minilm").is_dir(), reason="minilm is not installed")
def test_the_classifier_of_texts(tmp_path: Path) -> None:
    words = ["--source", "minilm", "--precision", "fp16", "--out", str(tmp_path / "onnx")]
    export_texts.main(words)
    shapes = text.shapes(load_as(RECIPES / "sentiment.yaml", Text))
    assert types_of(tmp_path / "onnx" / "model.onnx", shapes) == {"HALF"}


def test_a_network_of_somebody_elses(tmp_path: Path) -> None:
    """In the precision it comes in."""
    foreign = tmp_path / "foreign.onnx"
    exported_by_somebody(foreign)
    how: dict[str, Any] = {"crop": 96, "resize": 110, "interpolation": "bilinear"}
    how |= {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    words = ["--network", str(foreign), "--pictures", json.dumps(how)]
    adopt.main([*words, "--out", str(tmp_path / "onnx")])
    shapes = of_pixels("input", 96, OPT_BATCH, 256)
    assert types_of(tmp_path / "onnx" / "model.onnx", shapes) == {"FLOAT"}


def exported_by_somebody(path: Path) -> None:
    import torch

    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    )
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, 3, 96, 96),),
        path,
        input_names=["images"],
        output_names=["scores"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )
