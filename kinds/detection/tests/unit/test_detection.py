"""A detector's rows -> boxes, held against what can be told by hand; and the drawing of them."""

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from bundle_client import Box
from bundle_serving.agreement import compare
from bundle_serving.pictures import Transform, to_pixels_and_size
from kinds.detection.export import Detector
from kinds.detection.serving.agreement_of_boxes import (
    DETECTION,
    INDEPENDENT_DETECTION,
    compare_answers,
)
from kinds.detection.serving.detection import (
    INDEPENDENT,
    LIKELIEST,
    Detection,
    Found,
    Rules,
    candidates,
    pad_answers,
    survivors,
)
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import labels_beside
from scripts.base.errors import UserError
from scripts.recipes import drawing

NAMES = ("__background__", "cat", "dog")
RULES = Rules(threshold=0.3, overlap=0.5, candidates=10, most=10)
ANCHORS = np.array([[10, 10, 50, 50], [40, 40, 80, 80], [12, 10, 52, 50]], np.float32)


def rows(*scores: Sequence[float]) -> NDArray[np.float32]:
    """Boxes as the anchors are."""
    return np.array([[0, 0, 0, 0, *each] for each in scores], np.float32)


def detection(rules: Rules = RULES) -> Detection:
    return Detection(100, ANCHORS, NAMES, rules)


def test_boxes_are_in_the_pictures_own_pixels_best_first() -> None:
    found = detection().find(rows((0, 1, 0), (0, 0, 5), (9, 0, 0)), (50, 200))
    assert found.classes.tolist() == [2, 1]
    assert found.boxes.tolist() == [[80, 20, 160, 40], [20, 5, 100, 25]]
    assert found.scores == pytest.approx([0.9867, 0.5761], abs=1e-4)


def test_a_box_is_shifted_and_stretched_from_its_anchor_and_ends_with_the_picture() -> None:
    row = rows((9, 0, 0), (0, 9, 0), (9, 0, 0))
    row[1, :4] = (
        5,
        -10,
        0,
        5 * np.log(2),
    )  # half its width to the right, its height up, twice as high
    (box,) = detection().find(row, (100, 100)).boxes
    assert box == pytest.approx([60, 0, 100, 60])
    row[1, :4] = 0, 0, 1e9, 1e9
    (box,) = detection().find(row, (100, 100)).boxes
    assert box.tolist() == [0, 0, 100, 100]


def test_of_two_that_overlap_the_better_stays_if_they_are_of_a_class() -> None:
    same = detection().find(rows((0, 3, 0), (9, 0, 0), (0, 4, 0)), (100, 100))
    assert same.boxes[:, 0].tolist() == [12]
    two = detection().find(rows((0, 3, 0), (9, 0, 0), (0, 0, 4)), (100, 100))
    assert [NAMES[each] for each in two.classes] == ["dog", "cat"]
    lenient = detection(replace(RULES, overlap=0.95))
    assert len(lenient.find(rows((0, 3, 0), (9, 0, 0), (0, 4, 0)), (100, 100)).scores) == 2


def test_so_many_candidates_of_each_class_and_boxes_of_all() -> None:
    scores = np.array([[0.9, 0.4], [0.8, 0.5], [0.7, 0.2]], np.float32)
    anchors, classes = candidates(scores, replace(RULES, candidates=2))
    assert list(zip(anchors.tolist(), classes.tolist(), strict=True)) == [
        *((0, 0), (1, 0)),
        *((1, 1), (0, 1)),
    ]
    apart = np.array([[at, 0, at + 1, 1] for at in range(9)], np.float32)
    assert survivors(apart, np.zeros(9, np.intp), replace(RULES, most=4)).tolist() == [0, 1, 2, 3]


def test_rows_in_which_all_classes_count_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """As anybody may send them to this step: a second a picture, and 64 pictures at once."""
    compared = 0

    def count(box: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
        nonlocal compared
        compared += len(others)
        return np.zeros(len(others), np.float32)

    monkeypatch.setattr("kinds.detection.serving.detection.overlaps", count)
    rules = replace(RULES, candidates=50, most=100)
    classes = np.arange(5000) % 100
    assert len(survivors(np.zeros((5000, 4), np.float32), classes, rules)) == rules.most
    assert compared <= rules.most * rules.candidates


def test_of_an_anchor_only_the_likeliest_class_counts_where_the_rules_say_so() -> None:
    row = rows((0, 3, 2.9), (9, 0, 0), (9, 0, 0))
    assert detection(replace(RULES, overlap=1)).find(row, (100, 100)).classes.tolist() == [1, 2]
    one = detection(replace(RULES, overlap=1, labels=LIKELIEST)).find(row, (100, 100))
    assert one.classes.tolist() == [1] and one.scores == pytest.approx([0.5116], abs=1e-4)


def test_independent_labels_have_scores_of_their_own() -> None:
    """Of a network whose boxes may overlap; what is in the background's place says nothing."""
    row = rows((99, 2, 1), (-99, -9, 0), (0, -9, -9))
    found = detection(replace(RULES, overlap=1, labels=INDEPENDENT)).find(row, (100, 100))
    assert found.classes.tolist() == [1, 2, 2]
    assert found.scores == pytest.approx([0.8808, 0.7311, 0.5], abs=1e-4)


def test_boxes_without_an_area_overlap_nothing() -> None:
    flat = np.zeros((2, 4), np.float32)
    assert survivors(flat, np.zeros(2, np.intp), RULES).tolist() == [0, 1]


def test_pictures_of_one_request_are_padded_to_the_one_with_most_boxes() -> None:
    some = Found(np.ones((2, 4), np.float32), np.array([1, 2]), np.array([0.9, 0.5], np.float32))
    none = Found(np.zeros((0, 4), np.float32), np.zeros(0, np.intp), np.zeros(0, np.float32))
    answer = pad_answers([none, some], NAMES)
    assert answer["BOXES"].shape == (2, 2, 4) and answer["SCORES"][0].tolist() == [0, 0]
    assert answer["LABELS"].tolist() == [[b"", b""], [b"cat", b"dog"]]
    assert pad_answers([none], NAMES)["BOXES"].shape == (1, 0, 4)


def test_pictures_are_sampled_without_antialiasing_and_keep_their_size() -> None:
    """A chessboard of single pixels: between four of them lies their mean."""
    board = (np.indices((8, 12)).sum(axis=0) % 2 * 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(board).save(file, "PNG")
    how = Transform(4, 4, fit="squash", antialias=False, decode="full")
    pixels, size = to_pixels_and_size(file.getvalue(), how)
    assert size == (8, 12) and pixels.shape == (3, 4, 4)
    assert np.unique(pixels).tolist() == [127.5]


def answer(*boxes: tuple[str, float, Sequence[float]]) -> dict[str, NDArray[Any]]:
    return {
        "BOXES": np.array([[box for _, _, box in boxes]], np.float32).reshape(1, -1, 4),
        "LABELS": np.array([[label.encode() for label, _, _ in boxes]]).reshape(1, -1),
        "SCORES": np.array([[score for _, score, _ in boxes]], np.float32).reshape(1, -1),
    }


def test_answers_are_compared_box_by_box() -> None:
    cat, dog = ("cat", 0.9, (0, 0, 10, 10)), ("dog", 0.5, (50, 50, 90, 90))
    moved = ("cat", 0.8, (0, 0, 10, 11))
    same = compare_answers([answer(cat, dog)], [answer(dog, moved)])
    assert same.top1_equal == 1 and same.max_difference == pytest.approx(0.1)
    for other in (("dog", 0.9, (0, 0, 10, 10)), ("cat", 0.9, (5, 0, 15, 10))):
        assert compare_answers([answer(cat)], [answer(other)]).top1_equal == 0
    assert compare_answers([answer(cat, dog)], [answer(cat)]).top1_equal == 0  # half of them
    assert compare_answers([answer()], [answer()]).top1_equal == 1
    assert compare_answers([answer(cat)], [answer()]).top1_equal == 0


def test_rows_are_compared_by_scores_and_by_shifts() -> None:
    reference = rows((0, 3, 0), (0, 0, 4))[None]
    assert compare(reference, reference, DETECTION).max_difference == 0
    shifted = reference.copy()
    shifted[0, 0, 0] = 1  # a tenth of the anchor's width
    assert compare(reference, shifted, DETECTION).max_difference == pytest.approx(0.1)
    other = compare(reference, rows((0, 4, 0), (0, 0, 3))[None], DETECTION)
    assert other.top1_equal == 0


def test_rows_of_independent_labels_may_change_places() -> None:
    reference = rows((0, 3, 0), (0, 0, 4), (0, -2, -2))[None]
    turned = reference[:, ::-1]
    assert compare(reference, turned, INDEPENDENT_DETECTION).max_difference == 0
    assert compare(reference, turned, DETECTION).max_difference > 0.5
    lost = rows((0, 3, 0), (0, 0, 3), (0, -2, -2))[None]
    found = compare(reference, lost, INDEPENDENT_DETECTION)
    assert found.max_difference == pytest.approx(0.9820 - 0.9526, abs=1e-4)


def test_labels_lie_beside_the_weights(tmp_path: Path) -> None:
    weights = tmp_path / "street.pth"
    weights.write_bytes(b"weights")
    assert labels_beside(str(weights)) is None and labels_beside("default") is None
    (tmp_path / "street.txt").write_text("bicycle\ncar\n")
    spec = Detector("ssd", str(weights), labels=labels_beside(str(weights)), boxes={})
    words = as_words(spec)
    assert words[words.index("--labels") + 1] == tmp_path / "street.txt"
    known = spec.identity()
    (tmp_path / "street.txt").write_text("bicycle\ntram\n")
    assert spec.identity() != known
    weights.unlink()
    with pytest.raises(UserError, match="no weights file") as refused:
        spec.identity()
    assert "DETECTION=random" in refused.value.remedy


BOXES = (Box("cat", 0.9, 20, 30, 90, 95), Box("a tram with a long name", 0.4, 150, 0, 199, 50))


@pytest.mark.parametrize("ending", drawing.ENDINGS)
def test_boxes_are_drawn_into_the_picture(ending: str, tmp_path: Path) -> None:
    file, out = io.BytesIO(), tmp_path / f"drawn{ending}"
    Image.new("RGB", (200, 100), "white").save(file, "PNG")
    drawing.save(file.getvalue(), out, lambda picture: drawing.boxes(picture, BOXES))
    drawn = np.asarray(Image.open(out).convert("RGB")).astype(int)
    assert drawn.shape == (100, 200, 3)
    changed = np.abs(drawn - 255).sum(axis=2) > 60
    assert changed[30:95, 20].all() and changed[95, 20:90].all()
    assert not changed[60:90, 30:80].any()  # what is in a box is still seen


def test_a_picture_of_16_bits_is_drawn_into_as_it_is_seen(tmp_path: Path) -> None:
    file, out = io.BytesIO(), tmp_path / "drawn.png"
    Image.fromarray(np.full((10, 20), 20_000, np.uint16)).save(file, "PNG")
    drawing.save(file.getvalue(), out, lambda picture: None)
    assert (np.asarray(Image.open(out)) == 78).all()


def test_what_cannot_be_drawn_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    for out, pictures, message in (
        (tmp_path / "drawn.txt", 1, "does not say what kind of picture"),
        (tmp_path / "drawn.png", 2, "OUT= takes one picture, and there are 2"),
    ):
        with pytest.raises(UserError, match=message):
            drawing.require(["a.png"] * pictures, out)
    drawing.require(["a.png", "b.png"], None)
    photo = tmp_path / "photo.png"
    photo.touch()
    with pytest.raises(UserError, match="is the picture itself"):
        drawing.require([str(photo)], photo)
