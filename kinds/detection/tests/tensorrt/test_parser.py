"""NVIDIA's own parser and builder take its networks, as tests/tensorrt has it of the others."""

from pathlib import Path

import pytest

from kinds.detection import detectors
from kinds.detection import foreign as of_transformers
from kinds.detection.adoption import make_recipe as of_detector
from kinds.detection.detr.export import Detr, export
from kinds.detection.export import Detector
from scripts.artefacts.workspace import Workspace
from scripts.recipes.layout import GPU
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import networks
from tests.networks import needs_nvidias_builder
from tests.tensorrt.test_nvidias_parser import by_its_recipe, importable, types_of

__all__ = ["importable"]

pytestmark = [needs_nvidias_builder, pytest.mark.long]


@pytest.mark.rare
def test_detection(tmp_path: Path) -> None:
    """The graph alone: untrained, its louder scores are too far off in half precision."""
    recipe, settings, export = by_its_recipe("detection", DETECTION="random")
    assert isinstance(export.spec, Detector)
    network = detectors.build(export.spec, export.spec.boxes).network
    graph = tmp_path / "model.onnx"
    pixels = networks.Pixels(network, export.spec.precision).eval()
    detectors.to_onnx(pixels, network.transform["crop"], graph)
    assert types_of(graph, recipe.shapes(Workspace(tmp_path), settings)) == {"HALF"}


@pytest.mark.rare
@pytest.mark.parametrize("kind", of_transformers.KINDS)
def test_detectors_of_transformers(kind: str, tmp_path: Path) -> None:
    """In the precision they come in."""
    of_transformers.save_detector(kind, folder := tmp_path / "street")
    recipe = of_detector("street", folder, {})
    settings = Settings(DEFAULTS | recipe.defaults())
    spec, made = recipe.export(settings, GPU).spec, Workspace(tmp_path / "made")
    assert isinstance(spec, Detr)
    export(spec, made.onnx)
    assert types_of(made.onnx / "model.onnx", recipe.shapes(made, settings)) == {"FLOAT"}
