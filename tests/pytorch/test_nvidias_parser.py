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
from scripts.recipes.layout import GPU
from scripts.recipes.pipelines import RECIPES
from scripts.recipes.schema import load
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import adopt
from scripts.steps.shapes import OPTIONS, of_pixels
from scripts.steps.workspace import Workspace
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


def types_by_its_recipe(pipeline: str, made: Workspace, **settings: str) -> set[str]:
    """Exported and shaped as its recipe says for a GPU."""
    recipe, wished = load(RECIPES / f"{pipeline}.yaml"), Settings(DEFAULTS).replaced(**settings)
    asked = recipe.export(wished, GPU)
    assert asked
    step = importlib.import_module(f"scripts.steps.{asked.step}")
    assert step.main([*map(str, asked.words), "--out", str(made.onnx)]) == 0
    return types_of(made.onnx / "model.onnx", recipe.shapes(made, wished))


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_networks_of_pictures(arch: str, tmp_path: Path) -> None:
    made = Workspace(tmp_path)
    assert types_by_its_recipe("resnet50", made, ARCH=arch, WEIGHTS="random") == {"HALF"}
    shutil.rmtree(made.onnx)


def test_the_cascades_small_network(tmp_path: Path) -> None:
    assert types_by_its_recipe("cascade", Workspace(tmp_path), CASCADE="random") == {"HALF"}


def test_places(tmp_path: Path) -> None:
    assert types_by_its_recipe("places", Workspace(tmp_path), PLACES="random") == {"HALF"}


@pytest.mark.skipif(not (VENV / "minilm").is_dir(), reason="minilm is not installed")
def test_the_classifier_of_texts(tmp_path: Path) -> None:
    assert types_by_its_recipe("sentiment", Workspace(tmp_path), SENTIMENT="minilm") == {"HALF"}


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
