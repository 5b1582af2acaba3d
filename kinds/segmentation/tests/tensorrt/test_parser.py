"""NVIDIA's own parser and builder take its networks, as tests/tensorrt has it of the others."""

from pathlib import Path

import pytest

from kinds.segmentation import segmenters
from kinds.segmentation.export import Segmenter
from scripts.artefacts.workspace import Workspace
from tests.networks import needs_nvidias_builder
from tests.tensorrt.test_nvidias_parser import by_its_recipe, importable, types_of

__all__ = ["importable"]

pytestmark = [needs_nvidias_builder, pytest.mark.long]


@pytest.mark.rare
def test_segmentation(tmp_path: Path) -> None:
    """The graph alone, of any height and width: untrained, it is not sure of many a pixel."""
    recipe, settings, export = by_its_recipe("segmentation", SEGMENTATION="random")
    assert isinstance(export.spec, Segmenter)
    network, graph = segmenters.build(export.spec).network, tmp_path / "model.onnx"
    segmenters.to_onnx(segmenters.Classes(network, export.spec.precision).eval(), graph)
    assert types_of(graph, recipe.shapes(Workspace(tmp_path), settings)) == {"HALF"}
