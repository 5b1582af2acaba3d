"""NVIDIA's own parser and builder take every network that the bundle exports for a GPU, with the
shapes of its recipe: those of TensorRT for RTX, which need no GPU."""

import importlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmark.foreign import graphs
from benchmark.foreign.adopted import adopt_network
from scripts.artefacts.manifest import Manifest, Torchvision
from scripts.artefacts.shapes import OPTIONS, of_pixels
from scripts.artefacts.workspace import Workspace
from scripts.recipes import pipelines
from scripts.recipes.layout import GPU
from scripts.recipes.recipe import Export, Recipe
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import networks
from scripts.steps.export import to_onnx
from tests.networks import needs_nvidias_builder
from tests.project import ROOT

pytestmark = [needs_nvidias_builder, pytest.mark.long]

# What strong typing must run in half precision.
COMPUTE = ("CONVOLUTION", "MATRIX_MULTIPLY")

# The pipelines that serve each, of which one has a network of its own.
ARCHITECTURES = {
    "resnet50": ["resnet50"],
    "mobilenet_v2": ["resnet50", "cascade"],
    "efficientnet_b0": ["resnet50"],
    "vit_b_16": ["resnet50"],
    "convnext_tiny": ["resnet50"],
    "swin_t": ["resnet50"],
}
# Which graph each is exported to changes with PyTorch alone.
OFTEN = ("mobilenet_v2",)
OPT_BATCH = 32

# Of networks that were not made here: what is put around each differs.
FORMS = (
    *("channels last", "BGR", "grey", "levels (uint8)", "half precision, a softmax"),
    *("batch fixed at 1, with a class token", "independent labels", "one label, a sigmoid"),
    *("height other than width", "8 bits (QDQ, signed)"),
)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "rehearsal"))


def types_of(onnx: Path, *all_shapes: Mapping[str, str]) -> set[str]:
    """The types that the network computes in, once it is parsed, and built for these shapes."""
    rtx, options = (importlib.import_module(name) for name in ("rtx", "trtexec_options"))
    log: list[str] = []
    network = rtx.Network(lambda severity, message: log.append(f"{severity} {message}"))
    assert network.parse(onnx), log
    for shapes in all_shapes:
        profiles = options.profiles({f"--{name}": shapes[name] for name in OPTIONS})
        assert network.build(profiles, "8.6") is not None, log
    assert not [line for line in log if line.startswith("E")]
    return {each.outputs[0].type for each in network.layers() if each.kind in COMPUTE}


def by_its_recipe(pipeline: str, **chosen: str) -> tuple[Recipe, Settings, Export]:
    """How its network is exported for a GPU."""
    recipe, settings = (
        pipelines.find_pipeline(pipeline).recipe,
        Settings(DEFAULTS).replace_with(**chosen),
    )
    export = recipe.export(settings, GPU)
    assert export
    return recipe, settings, export


@pytest.mark.parametrize(
    "arch",
    [
        pytest.param(arch, marks=[] if arch in OFTEN else [pytest.mark.rare])
        for arch in ARCHITECTURES
    ],
)
def test_networks_of_pictures(arch: str, tmp_path: Path) -> None:
    """The graph alone: `make up` compares it with PyTorch, and the accuracy gate again."""
    chosen = {"ARCH": arch, "WEIGHTS": "random", "CASCADE": "random"}
    asked = [by_its_recipe(pipeline, **chosen) for pipeline in ARCHITECTURES[arch]]
    spec, *others = (export.spec for _, _, export in asked)
    assert isinstance(spec, Torchvision)
    assert all(other.identity() == spec.identity() for other in others), "one is like another"
    network = networks.build(spec)
    made = Workspace(tmp_path)
    made.onnx.mkdir()
    graph = made.onnx / "model.onnx"
    pixels = networks.Pixels(network, spec.precision).eval()
    to_onnx(pixels, network.transform["crop"], graph)
    manifest = Manifest(spec.identity(), spec.is_untrained, network.transform, {}, {})
    (made.onnx / "manifest.json").write_text(manifest.dump())
    shapes = [recipe.shapes(made, settings) for recipe, settings, _ in asked]
    assert types_of(graph, *shapes) == {"HALF"}
    graph.unlink()


def types_after_its_step(pipeline: str, made: Workspace, **chosen: str) -> set[str]:
    recipe, settings, export = by_its_recipe(pipeline, **chosen)
    words = ["-m", export.step.module, *map(str, export.words), "--out", str(made.onnx)]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
    return types_of(made.onnx / "model.onnx", recipe.shapes(made, settings))


def test_a_network_of_somebody_elses(tmp_path: Path) -> None:
    """In the precision it comes in."""
    exported_by_somebody(tmp_path / "foreign.onnx")
    assert types_of_theirs({"ONNX": str(tmp_path / "foreign.onnx")}, tmp_path) == {"FLOAT"}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_networks_of_somebody_elses(name: str, tmp_path: Path) -> None:
    (case,) = (each for each in graphs.CASES if each.name == name)
    case.make(tmp_path)
    assert types_of_theirs(case.make_settings(tmp_path), tmp_path)


def types_of_theirs(words: dict[str, str], folder: Path) -> set[str]:
    recipe, made = adopt_network(words, folder)
    crop = made.manifest.transform["crop"]
    shapes = of_pixels("input", crop, OPT_BATCH, recipe.most)
    return types_of(made.onnx / "model.onnx", shapes)


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
