"""The pictures that a precision is judged on."""

import numpy as np
import pytest

from scripts.artefacts.samples import SCENES, draw_scenes


def test_scenes_are_all_different_and_everywhere_the_same() -> None:
    drawn = draw_scenes(2 * len(SCENES), 40, 64)
    assert drawn.shape == (2 * len(SCENES), 3, 40, 64) and drawn.dtype == np.uint8
    assert len({each.tobytes() for each in drawn}) == len(drawn)
    assert all(np.ptp(each) > 20 for each in drawn)
    assert np.array_equal(drawn, draw_scenes(2 * len(SCENES), 40, 64))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (2, 3), (1, 1), (300, 6)])
def test_they_are_of_any_size(height: int, width: int) -> None:
    assert draw_scenes(40, height, width).shape == (40, 3, height, width)
