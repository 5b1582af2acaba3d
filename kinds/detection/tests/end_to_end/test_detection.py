"""The pipeline that says what is where, held against torchvision's own detector."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tritonclient.utils import InferenceServerException

from bundle_client import Client, PictureRefused
from kinds.detection.recipe import Detection
from kinds.detection.tests.by_torchvision import (
    SSDLITE,
    ask_for_boxes,
    assert_same_boxes,
    boxes_by_torchvision,
)
from scripts.recipes.pictures import UNTRAINED
from scripts.recipes.schema import load
from tests.pipelines import of_mixed_sizes
from tests.project import ROOT, Project, error_lines

MODEL = "detection"


def test_how_right_it_is_by_cocos_measure(with_detection: Project, tmp_path: Path) -> None:
    """On boxes that it has found itself."""
    photos = of_mixed_sizes(tmp_path)[:4]
    annotations = []
    with Client(with_detection.http) as client:
        for number, photo in enumerate(photos):
            for box in client.detect(photo).boxes[:3]:
                name = box.label.removesuffix(UNTRAINED)
                corner = [box.left, box.top, box.right - box.left, box.bottom - box.top]
                annotations.append({"image_id": number, "category_id": name, "bbox": corner})
    names = {str(each["category_id"]) for each in annotations}
    content = {
        "images": [{"id": at, "file_name": photo.name} for at, photo in enumerate(photos)],
        "categories": [{"id": name, "name": name} for name in names],
        "annotations": annotations,
    }
    (tmp_path / "val.json").write_text(json.dumps(content))
    data = str(tmp_path / "val.json")
    found = json.loads(with_detection.made("eval", MODEL=MODEL, EVAL=data, JSON="1"))
    assert found["items"] == 4 and found["classes"].keys() == names
    # Some of what else it finds, of the same classes, counts against it.
    assert found["figures"]["mAP"]["value"] > 0.5
    output = with_detection.made("eval", MODEL=MODEL)
    assert "mAP" in output and "report.html" in output
    assert "evaluated" in with_detection.made("history", MODEL=MODEL)


def test_boxes_are_those_of_torchvision(with_detection: Project, tmp_path: Path) -> None:
    """Ten pictures of mixed sizes, which share batches."""
    from kinds.detection import detectors
    from kinds.detection.export import Detector

    recipe = load(ROOT / "kinds" / "detection" / "detection.yaml")
    assert isinstance(recipe, Detection)
    photos = of_mixed_sizes(tmp_path)
    boxes = recipe.boxes.model_dump()
    detector = detectors.build(Detector(SSDLITE, "random", boxes=boxes), boxes)
    expected = boxes_by_torchvision(detector, photos)
    files = [photo.read_bytes() for photo in photos]
    with ThreadPoolExecutor(len(files)) as pool:
        answers = list(
            pool.map(lambda file: ask_for_boxes(with_detection.http, MODEL, file), files)
        )
    together_asked = ask_for_boxes(with_detection.http, MODEL, *files[:3])
    for number, known in enumerate(expected):
        marked = np.char.add(known["LABELS"], b" (untrained weights)")
        assert_same_boxes({**known, "LABELS": marked}, answers[number], recipe.boxes.threshold)
    for row, alone in enumerate(answers[:3]):
        count = alone["SCORES"].shape[1]
        assert np.allclose(together_asked["BOXES"][row, :count], alone["BOXES"][0], atol=0.1)
        assert not together_asked["SCORES"][row, count:].any()


def test_nothing_found_and_no_picture(with_detection: Project, tmp_path: Path) -> None:
    Image.new("RGB", (50, 80), "black").save(tmp_path / "black.png")
    with Client(with_detection.http) as client:
        found = client.detect(tmp_path / "black.png")
        assert all(0 <= box.left <= box.right <= 50 for box in found.boxes)
        with pytest.raises(PictureRefused, match="not a readable picture"):
            client.detect(b"no picture at all")
    with pytest.raises(InferenceServerException) as refused:
        ask_for_boxes(with_detection.http, MODEL, b"no picture at all")
    assert refused.value.status() == "400"


def test_the_command_prints_and_draws(with_detection: Project, tmp_path: Path) -> None:
    photo, out = of_mixed_sizes(tmp_path)[0], tmp_path / "drawn.png"
    words = {"IMG": str(photo), "OUT": str(out)}
    told = json.loads(with_detection.made("detect", JSON="1", **words).splitlines()[-1])
    assert told["source"] == str(photo) and len(told["boxes"]) > 3
    assert Image.open(out).size == Image.open(photo).size
    assert out.read_bytes() != photo.read_bytes()
    (best,) = json.loads(
        with_detection.made("detect", JSON="1", TOP="1", **words).splitlines()[-1]
    )["boxes"]
    assert best == told["boxes"][0] and "(untrained weights)" in best["label"]
    table = with_detection.made("detect", TOP="2", IMG=str(photo)).splitlines()
    assert len(table) == 3 and best["label"] in table[1]
    wrong = with_detection.make("detect", IMG=str(photo), OUT="drawn.doc")
    assert wrong.returncode and "OUT=drawn.doc does not say what kind of picture" in wrong.stderr


def test_a_drawing_that_cannot_be_saved_is_refused_before_anything_starts(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, FLAVOUR="local")
    for name in ("a.png", "b.png"):
        (project.path / name).touch()
    for wrong, reason in (
        ({"OUT": "drawn.doc"}, "OUT=drawn.doc does not say what kind of picture"),
        ({"OUT": "drawn.png", "IMG": "a.png b.png"}, "OUT= takes one picture, and there are 2"),
    ):
        (line,) = error_lines(project.make("detect", **{"IMG": "a.png", **wrong}).stderr)
        assert reason in line
    assert not (project.path / "build" / "versions").exists()
