"""How right masks are."""

from __future__ import annotations

from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kinds.segmentation.overlaps import Masks
from scripts.base.errors import UserError

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


def test_a_mask_in_another_size_is_brought_to_the_answers(tmp_path: Path) -> None:
    data = Masks.read(write(tmp_path, np.kron(TRUTH, np.ones((3, 3), np.uint8))), CLASSES)
    found = data.measure([ask(data, np.where(TRUTH == 255, 0, TRUTH))], {})
    assert found.figures["mIoU"].value == 1


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
