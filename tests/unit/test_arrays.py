"""Arrays of pixels become squares, and scores become named answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bundle_client.wire import parse_label
from bundle_serving.arrays import ArrayError, Squares, to_answers, to_square, to_squares
from kinds.places.export import CATEGORIES, Checkpoint, categories_beside, names
from scripts.base.errors import NoWeights, UserError

HOW = Squares(256, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 8, 1), "8x8x1 is not a picture"),
        ((8, 8, 4), "8x8x4 is not a picture"),
        ((0, 8, 3), "0x8x3 is not a picture"),
    ],
)
def test_what_is_no_picture_is_refused(shape: tuple[int, ...], message: str) -> None:
    pixels = np.broadcast_to(np.float32(0), shape)
    with pytest.raises(ArrayError, match=message):
        to_square(pixels, HOW)


def test_the_arrays_of_a_request_are_bounded_together() -> None:
    assert to_squares(np.zeros((2, 8, 8, 3), np.float32), HOW).shape == (2, 3, 256, 256)
    for count, height in ((1, 8000), (2, 4000), (100, 80)):
        pixels = np.broadcast_to(np.float32(0), (count, height, 7000, 3))
        with pytest.raises(ArrayError, match=f"{count} pictures of 7000x{height} pixels, more"):
            to_squares(pixels, HOW)


def test_numbers_that_are_no_colours() -> None:
    pixels = np.full((4, 4, 3), 1e9, np.float32)
    assert np.array_equal(to_square(pixels, HOW), to_square(np.full_like(pixels, 255), HOW))
    pixels[0, 0, 0] = np.nan
    with pytest.raises(ArrayError, match="NaN or infinity"):
        to_square(pixels, HOW)


def test_the_likeliest_first_as_a_client_of_triton_reads_it() -> None:
    scores = np.log(np.array([[0.1, 0.6, 0.3], [0.5, 0.25, 0.25]], np.float32))
    found = to_answers(scores, ["airfield", "bar: outside", "cafe"], 2)
    assert found.shape == (2, 2)
    first, second = (parse_label(each) for each in found[0])
    assert (first.index, first.label, second.label) == (1, "bar: outside", "cafe")
    assert first.probability == pytest.approx(0.6, abs=1e-5)


def checkpoint(weights: str, classes: int = 2) -> Checkpoint:
    how: dict[str, object] = {"side": 256}
    return Checkpoint(
        "torchvision/resnet50", weights, classes, how, categories=categories_beside(weights)
    )


def test_names_are_read_beside_the_checkpoint(tmp_path: Path) -> None:
    weights = str(tmp_path / "resnet50_places365.pth.tar")
    assert names(checkpoint(weights)) == ["class 0", "class 1"]
    (tmp_path / CATEGORIES).write_text("/b/bar/outdoor 1\n/a/airfield 0\n")
    assert names(checkpoint(weights)) == ["airfield", "bar/outdoor"]
    with pytest.raises(UserError, match="has no name for class 2"):
        names(checkpoint(weights, 3))
    assert names(checkpoint("random", 1)) == ["class 0 (untrained weights)"]


def test_weights_that_are_not_there_are_named_with_where_they_are() -> None:
    with pytest.raises(NoWeights) as refused:
        checkpoint("/nowhere.pth.tar").identity()
    assert "places2.csail.mit.edu" in refused.value.remedy
