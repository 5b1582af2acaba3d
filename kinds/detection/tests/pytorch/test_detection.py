"""Boxes, held against those of torchvision's own detector."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bundle_serving.pictures import Transform, to_pixels_and_size
from kinds.detection import detectors
from kinds.detection.detectors import Rows, Whole
from kinds.detection.export import Detector
from kinds.detection.recipe import Detection as Recipe
from kinds.detection.serving.detection import BOX, Detection, Rules
from kinds.detection.tests.by_torchvision import SSDLITE, assert_same_boxes, boxes_by_torchvision
from scripts.artefacts.picture import mug
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.schema import load
from scripts.steps.networks import Pixels, make_module
from scripts.steps.vision import torchvision
from tests.pipelines import of_mixed_sizes
from tests.project import ROOT


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    found = load(ROOT / "kinds" / "detection" / "detection.yaml")
    assert isinstance(found, Recipe)
    return found


@pytest.fixture(scope="module")
def whole(recipe: Recipe) -> Whole:
    boxes = recipe.boxes.model_dump()
    return detectors.build(Detector(SSDLITE, "random", boxes=boxes), boxes)


@pytest.fixture
def detection(whole: Whole, recipe: Recipe, tmp_path: Path) -> Detection:
    whole.save_anchors(tmp_path / "anchors.npy")
    anchors = np.load(tmp_path / "anchors.npy")
    rows = configs.read_model("detection_postprocessing").input[0].dims
    assert list(rows) == [len(anchors), BOX + len(whole.network.labels)]
    assert whole.network.transform["crop"] == recipe.side
    rules = Rules(**recipe.boxes.model_dump())
    return Detection(recipe.side, anchors, whole.network.labels, rules)


def test_the_same_rows_become_the_same_boxes(whole: Whole, detection: Detection) -> None:
    """Of more boxes than count, far beyond their anchors too."""
    rows = torch.randn(3, len(detection.anchors), BOX + 91, generator=torch.manual_seed(0)) * 3
    rows[0, :, BOX] = 12  # hardly anything but background
    side = detection.side
    heads = {"bbox_regression": rows[..., :BOX], "cls_logits": rows[..., BOX:]}
    anchors = [torch.from_numpy(detection.anchors)] * len(rows)
    shapes, sizes = [(side, side)] * len(rows), [(480, 640), (1000, 30), (1, 1)]
    expected = whole.module.postprocess_detections(heads, anchors, shapes)
    expected = whole.module.transform.postprocess(expected, shapes, sizes)
    for row, size, known in zip(rows.numpy(), sizes, expected, strict=True):
        found = detection.find(row, size)
        assert found.classes.tolist() == known["labels"].tolist()
        assert found.scores == pytest.approx(known["scores"].numpy(), abs=1e-6)
        assert found.boxes == pytest.approx(known["boxes"].numpy(), abs=1e-3)
    assert len(expected[1]["scores"]) == detection.rules.most > len(expected[0]["scores"])


def test_pictures_of_mixed_sizes_in_one_batch(
    whole: Whole, detection: Detection, tmp_path: Path
) -> None:
    photos = of_mixed_sizes(tmp_path)
    how = Transform(**whole.network.transform, decode="full")
    seen = [to_pixels_and_size(photo.read_bytes(), how) for photo in photos]
    with torch.inference_mode():
        rows = Pixels(whole.network)(torch.from_numpy(np.stack([pixels for pixels, _ in seen])))
    answer = detection.answer(rows.numpy(), np.array([size for _, size in seen]))
    for number, expected in enumerate(boxes_by_torchvision(whole, photos)):
        found = {name: each[number : number + 1] for name, each in answer.items()}
        assert_same_boxes(expected, found, detection.rules.threshold)


def test_labels_may_be_of_any_script(whole: Whole) -> None:
    network = replace(whole.network, labels=["__background__", *["straße 猫"] * 90])
    found = replace(whole, network=network).find(mug())
    assert {*found["LABELS"][0]} == {"straße 猫".encode()}


def test_a_detector_of_a_trained_backbone_answers_as_torchvisions(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made as the README says: its last layers are not halved."""
    models, boxes = torchvision.models, recipe.boxes.model_dump()
    trained = models.mobilenet_v3_large().state_dict()
    monkeypatch.setattr(
        models.MobileNet_V3_Large_Weights, "get_state_dict", lambda *_, **__: trained
    )
    theirs = models.detection.ssdlite320_mobilenet_v3_large(num_classes=4).eval()
    torch.save(theirs.state_dict(), weights := tmp_path / "street.pth")
    ours = detectors.build(Detector(SSDLITE, str(weights), boxes=boxes), boxes)
    noise = torch.randn(2, 3, 320, 320)
    with torch.inference_mode():
        assert torch.equal(ours.network.module(noise), Rows(theirs)(noise))


def test_weights_of_the_users_own(recipe: Recipe, tmp_path: Path) -> None:
    """As many classes as the file has, called what stands beside it."""
    boxes = recipe.boxes.model_dump()
    weights, labels = tmp_path / "street.pth", tmp_path / "street.txt"
    torch.save(make_module(SSDLITE, 4).state_dict(), weights)
    numbered = detectors.build(Detector(SSDLITE, str(weights), boxes=boxes), boxes).network
    assert numbered.labels == ["__background__", "class 1", "class 2", "class 3"]
    labels.write_text("bicycle\ncar\ntram\n")
    by_name = Detector(SSDLITE, str(weights), boxes=boxes, labels=labels)
    named = detectors.build(by_name, boxes).network
    assert named.labels[1:] == ["bicycle", "car", "tram"]
    labels.write_text("bicycle\ncar\n")
    with pytest.raises(UserError, match=r"has 2 labels, and street.pth 3 classes besides"):
        detectors.build(by_name, boxes)
    torch.save({"fc.weight": torch.zeros(3, 3)}, weights)
    with pytest.raises(UserError, match=f"has no weights of {SSDLITE}"):
        detectors.build(Detector(SSDLITE, str(weights), boxes=boxes), boxes)
