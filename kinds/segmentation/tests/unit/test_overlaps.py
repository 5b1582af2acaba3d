"""How right masks are."""

from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kinds.segmentation.overlaps import Masks
from scripts.base.errors import UserError
from scripts.rollout.labelled import ContestOfFigures
from scripts.stacks.state import State

CLASSES = ["ground", "house", "tree"]
TRUTH = np.array([[0, 0, 1, 1], [0, 0, 1, 255]], np.uint8)


def write(folder: Path, mask: Any = TRUTH) -> Path:
    for name in ("images", "masks"):
        (folder / name).mkdir()
    (folder / "images" / "1.jpg").write_bytes(b"")
    Image.fromarray(mask).save(folder / "masks" / "1.png")
    return folder


def ask(data: Masks, answer: Any) -> Any:
    found = SimpleNamespace(mask=np.array(answer, np.uint8))
    client: Any = SimpleNamespace(segment=lambda *_: found)
    return data.ask(client, "segmentation", data.items[0])


def test_intersection_over_union(tmp_path: Path) -> None:
    data = Masks.read(write(tmp_path), CLASSES)
    confusion = ask(data, [[0, 0, 1, 1], [0, 1, 1, 2]])  # the last pixel counts neither way
    found = data.measure([confusion, None], {"2.jpg": "not a picture"})
    assert found.items == 1 and found.classes == {"ground": 3 / 4, "house": 3 / 4}
    assert isclose(found.figures["mIoU"].value, 3 / 4)
    assert isclose(found.figures["pixels right"].value, 6 / 7)


@pytest.mark.parametrize(
    ("wrong", "said", "objects"),
    [
        (0, "mIoU +0.0 points (95% certain: +0.0 to +0.0), on 40 items of val", False),
        (1, "cannot tell whether it is within MAX_DROP=1: mIoU -", False),
        (20, "on 40 items of val, and MAX_DROP=1 is the most", True),
    ],
)
def test_a_candidate_is_judged_by_its_masks(
    tmp_path: Path, wrong: int, said: str, objects: bool
) -> None:
    (folder := tmp_path / "val").mkdir()
    write(folder)
    one = Masks.read(folder, CLASSES)
    data = Masks([*one.items] * 40, one.masks, CLASSES)
    right, worse = (ask(data, answer) for answer in (TRUTH % 255, (TRUTH + 1) % 3))
    live = [(right, 1.0, "") for _ in data.items]
    candidate = [(worse if place < wrong else right, 1.0, "") for place in range(40)]
    contest = ContestOfFigures(State("local", "", {}), folder, {1: data, 2: data})
    verdict, found = contest.judge(live, candidate, 1)
    assert said in (verdict.objection or verdict.what) and bool(verdict.objection) == objects
    assert found.items == 40 and (found.figures["mIoU"].value == 1) == (wrong == 0)


def test_what_no_version_can_read_judges_nothing(tmp_path: Path) -> None:
    data = Masks.read(write(tmp_path), CLASSES)
    contest = ContestOfFigures(State("local", "", {}), tmp_path, {1: data, 2: data})
    with pytest.raises(UserError, match=r"can be read by both versions \(cut short\)"):
        contest.judge([(None, 1.0, "cut short")], [(None, 1.0, "cut short")], 1)


def test_a_mask_in_another_size_is_brought_to_the_answers(tmp_path: Path) -> None:
    data = Masks.read(write(tmp_path, np.kron(TRUTH, np.ones((3, 3), np.uint8))), CLASSES)
    found = data.measure([ask(data, np.where(TRUTH == 255, 0, TRUTH))], {})
    assert found.figures["mIoU"].value == 1


def test_a_mask_that_lies_on_its_side_is_refused(tmp_path: Path) -> None:
    """Of a phone's picture, as it lies in the file."""
    data = Masks.read(write(tmp_path, TRUTH.T), CLASSES)
    with pytest.raises(UserError, match="wider or higher than its picture is, upright"):
        ask(data, TRUTH)


def test_masks_of_black_and_white_tell_nothing(tmp_path: Path) -> None:
    """White is 255."""
    data = Masks.read(write(tmp_path, np.where(TRUTH, np.uint8(255), TRUTH)), CLASSES)
    with pytest.raises(UserError, match="the masks have one number at most"):
        data.measure([ask(data, TRUTH)], {})


@pytest.mark.parametrize("mask", [TRUTH // 2 + 5, np.stack([TRUTH] * 3, 2)])
def test_other_masks_are_refused(tmp_path: Path, mask: Any) -> None:
    data = Masks.read(write(tmp_path, mask), CLASSES)
    with pytest.raises(UserError, match="number of a class in each pixel, from 0 to 2"):
        ask(data, TRUTH)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images/ and masks/"):
        Masks.read(tmp_path, CLASSES)
    write(tmp_path)
    (tmp_path / "masks" / "1.png").unlink()
    with pytest.raises(UserError, match=r"1 masks of .* are not there: 1.png"):
        Masks.read(tmp_path, CLASSES)
