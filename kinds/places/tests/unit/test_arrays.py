"""Arrays of pixels become squares, and scores become named answers."""

import numpy as np
import pytest

from bundle_client.answers import parse_label
from kinds.places.serving.arrays import ArrayError, Squares, to_answers, to_square, to_squares

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
