"""The class of each pixel, held against torchvision's own network."""

from pathlib import Path

import onnx
import pytest
import torch

from bundle_serving.pictures import Transform, to_pixels
from kinds.segmentation import segmenters
from kinds.segmentation.export import Segmenter
from kinds.segmentation.recipe import Segmentation
from kinds.segmentation.segmenters import Classes, Whole
from kinds.segmentation.serving.agreement_of_masks import of_masks
from kinds.segmentation.tests.by_torchvision import LRASPP, masks_by_torchvision, of_mixed_shapes
from scripts.base.errors import UserError
from scripts.recipes.schema import load
from scripts.steps.networks import make_module
from tests.project import ROOT


@pytest.fixture(scope="module")
def whole() -> Whole:
    return segmenters.build(Segmenter(LRASPP, "random"))


def test_pixels_are_of_torchvisions_classes(whole: Whole, tmp_path: Path) -> None:
    recipe = load(ROOT / "kinds" / "segmentation" / "segmentation.yaml")
    assert isinstance(recipe, Segmentation)
    assert whole.network.transform["resize"] == recipe.side
    how = Transform(**whole.network.transform, decode="full", longest=recipe.longest)
    photos, classes = of_mixed_shapes(tmp_path), Classes(whole.network).eval()
    with torch.inference_mode():
        found = [
            classes(torch.from_numpy(to_pixels(photo.read_bytes(), how)[None])).numpy()
            for photo in photos
        ]
    agreement = of_masks(masks_by_torchvision(whole, photos), found)
    assert agreement.top1_equal == len(photos) and agreement.max_difference < 0.001


@pytest.mark.rare
def test_tensorrt_makes_uint8_of_floats(whole: Whole, tmp_path: Path) -> None:
    """Of integers its documentation says nothing."""
    segmenters.to_onnx(Classes(whole.network, "fp16").eval(), tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    makers = {output: node for node in graph.node for output in node.output}
    last = makers["output"]
    while last.op_type == "Identity":
        last = makers[last.input[0]]
    before = makers[last.input[0]]
    kinds = [node.attribute[0].i for node in (before, last)]
    assert [before.op_type, last.op_type] == ["Cast", "Cast"]
    assert kinds == [onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8]


def test_classes_that_are_called_as_torchvisions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing else is said, and there are as many."""
    torch.save(make_module(LRASPP, 21).state_dict(), tmp_path / "street.pth")
    found = segmenters.build(Segmenter(LRASPP, str(tmp_path / "street.pth"))).network
    assert found.labels[:2] == ["__background__", "aeroplane"]
    assert "street.txt beside it names others" in capsys.readouterr().out


def test_weights_of_the_users_own(tmp_path: Path) -> None:
    """As many classes as the file has, called what stands beside it."""
    weights, labels = tmp_path / "street.pth", tmp_path / "street.txt"
    torch.save(make_module(LRASPP, 3).state_dict(), weights)
    numbered = segmenters.build(Segmenter(LRASPP, str(weights))).network
    assert numbered.labels == ["class 0", "class 1", "class 2"]
    labels.write_text("road\npavement\nsky\n")
    named = segmenters.build(Segmenter(LRASPP, str(weights), labels=labels)).network
    assert named.labels == ["road", "pavement", "sky"]
    labels.write_text("road\nsky\n")
    with pytest.raises(UserError, match=r"has 2 labels, and street.pth 3 classes"):
        segmenters.build(Segmenter(LRASPP, str(weights), labels=labels))
    torch.save({"fc.weight": torch.zeros(3, 3)}, weights)
    with pytest.raises(UserError, match=f"has no weights of {LRASPP}"):
        segmenters.build(Segmenter(LRASPP, str(weights)))
    torch.save(make_module(LRASPP, 257).state_dict(), weights)
    with pytest.raises(UserError, match="has 257 classes, and a mask at most 256"):
        segmenters.build(Segmenter(LRASPP, str(weights)))
