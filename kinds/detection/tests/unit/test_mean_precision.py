"""How right a detector is, by COCO's measure."""

import json
from contextlib import nullcontext
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from PIL import ExifTags, Image

from kinds.detection.mean_precision import Coco, Found, Truth, match
from scripts.base.errors import UserError

BOX = (10.0, 10.0, 110.0, 110.0)
FAR = (300.0, 300.0, 320.0, 320.0)


def shift(box: tuple[float, ...], share: float) -> tuple[float, ...]:
    """So far to the right that it overlaps the other by this share of both."""
    width = box[2] - box[0]
    by = width - 2 * width * share / (1 + share)
    return box[0] + by, box[1], box[2] + by, box[3]


def value(truths: list[Truth], answers: list[Found]) -> float:
    return Coco([], truths).measure(answers, {}).figures["mAP"].value


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(0.9, BOX)], 1),
        ([], 0),
        ([(0.9, FAR)], 0),
        ([(0.9, shift(BOX, 0.62))], 0.3),  # at overlaps of 0.5, 0.55 and 0.6
        ([(0.9, BOX), (0.8, FAR)], 1),  # what is wrong comes after all is found
        ([(0.9, FAR), (0.8, BOX)], 0.5),
        ([(0.9, BOX), (0.8, BOX)], 1),  # the same twice
    ],
)
def test_one_box(found: Any, expected: float) -> None:
    assert isclose(value([Truth({"car": [BOX]})], [{"car": found}]), expected, abs_tol=1e-6)


def test_half_of_what_is_there() -> None:
    """A recall of 0.5 is reached at 51 of 101 places."""
    truths = [Truth({"car": [BOX]}), Truth({"car": [FAR]})]
    assert isclose(value(truths, [{"car": [(0.9, BOX)]}, {}]), 51 / 101, abs_tol=1e-6)


def test_classes_count_alike() -> None:
    truths = [Truth({"car": [BOX]}), Truth({"tree": [BOX]})]
    found = Coco([], truths).measure([{"car": [(0.9, BOX)]}, {"car": [(0.3, BOX)]}], {})
    assert isclose(found.figures["mAP"].value, 0.5)
    assert isclose(found.classes["car"], 1) and found.classes["tree"] == 0
    figure = found.figures["mAP"]
    assert figure.low <= figure.value <= figure.high


def test_what_is_in_a_crowd_counts_neither_way() -> None:
    crowd = Truth({"car": [FAR]}, {"car": [BOX]})
    small = (20.0, 20.0, 40.0, 40.0)
    assert isclose(value([crowd], [{"car": [(0.9, small), (0.8, FAR)]}]), 1)
    matched = match([(0.9, small)], crowd, "car")
    assert matched.ignored.all() and not matched.right.any() and matched.truths == 1


@pytest.mark.parametrize(
    ("width", "height", "is_refused"), [(None, None, False), (30, 40, False), (40, 30, True)]
)
def test_boxes_of_the_picture_as_it_lies_are_refused(
    tmp_path: Path, width: Any, height: Any, is_refused: bool
) -> None:
    """Answers are of the upright one."""
    path = write(tmp_path)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (40, 30)).save(tmp_path / "images" / "1.jpg", exif=exif)
    content = json.loads(path.read_text())
    content["images"][0] |= {"width": width, "height": height}
    path.write_text(json.dumps(content))
    wrong = pytest.raises(UserError, match=r"labelled without regard to their EXIF.*: 1\.jpg")
    with wrong if is_refused else nullcontext():
        Coco.read(path, ["car"], "detection")


def write(folder: Path, **changed: Any) -> Path:
    content = {
        "images": [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}],
        "categories": [{"id": 7, "name": "car"}],
        "annotations": [
            {"image_id": 1, "category_id": 7, "bbox": [10, 10, 100, 100]},
            {"image_id": 2, "category_id": 7, "bbox": [0, 0, 5, 5], "iscrowd": 1},
        ],
    }
    (folder / "images").mkdir(exist_ok=True)
    for number in (1, 2):
        (folder / "images" / f"{number}.jpg").write_bytes(b"")
    path = folder / "val.json"
    path.write_text(json.dumps(content | changed))
    return path


def test_cocos_json_is_read(tmp_path: Path) -> None:
    data = Coco.read(write(tmp_path), ["car", "tree"], "street")
    assert [item.name for item in data.items] == ["1.jpg", "2.jpg"]
    assert data.truths[0].boxes == {"car": [BOX]} and data.truths[1].crowds["car"]
    found = data.measure([{"car": [(0.9, BOX)]}, None], {"2.jpg": "not a picture"})
    assert isclose(found.figures["mAP"].value, 1) and found.items == 1


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        (
            {"categories": [{"id": 7, "name": "wren"}]},
            r"1 class that street does not know: wren \(2\)",
        ),
        ({"annotations": []}, "has no boxes"),
        ({"annotations": [{"image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 4]}]}, "not COCO's"),
        ({"images": 3}, "not COCO's"),
        (
            {"images": [{"id": 1, "file_name": f"{n}.jpg"} for n in "12"], "annotations": []},
            "has several images of one id",
        ),
        (
            {"images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "2.jpg"}]},
            "1 pictures of val.json are not there: a.jpg",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changed: dict[str, Any], cause: str) -> None:
    with pytest.raises(UserError, match=cause):
        Coco.read(write(tmp_path, **changed), ["car"], "street")
