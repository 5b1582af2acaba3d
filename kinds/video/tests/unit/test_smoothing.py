"""What frames show, smoothed over time, and which stream they are of."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bundle_serving.scores import softmax
from kinds.video.serving.smoothing import NoRoom, Rules, Streams

RULES = Rules(smoothing=0.2, streams=2, idle_s=10)


def frames(count: int, seed: int = 0, classes: int = 5) -> NDArray[np.float32]:
    """The probabilities of each; with a batch dimension, as from the network."""
    scores = np.random.default_rng(seed).standard_normal((count, 1, classes)).astype(np.float32)
    return softmax(scores)


def by_a_plain_loop(rows: NDArray[np.float32], weight: float) -> list[NDArray[np.float64]]:
    averages: list[NDArray[np.float64]] = []
    for row in rows.astype(np.float64):
        averages.append(weight * row + (1 - weight) * averages[-1] if averages else row)
    return averages


def test_it_is_the_moving_average_that_a_plain_loop_computes() -> None:
    rows, streams = frames(300), Streams(RULES)
    found = [streams.add(7, row, begins=number == 0) for number, row in enumerate(rows)]
    assert [each.frames for each in found] == [*range(1, 301)]
    for expected, each in zip(by_a_plain_loop(rows, 0.2), found, strict=True):
        np.testing.assert_allclose(each.probabilities, expected, atol=1e-6)


def test_streams_never_mix() -> None:
    """Whatever their order."""
    both, streams = {1: frames(50, 1), 2: frames(50, 2)}, Streams(RULES)
    last = {}
    for number in range(50):
        for stream in (1, 2) if number % 3 else (2, 1):
            last[stream] = streams.add(stream, both[stream][number], begins=number == 0)
    for stream, rows in both.items():
        expected = by_a_plain_loop(rows, 0.2)[-1]
        np.testing.assert_allclose(last[stream].probabilities, expected, atol=1e-6)


def test_a_stream_that_begins_again_forgets() -> None:
    rows, streams = frames(3), Streams(RULES)
    streams.add(1, rows[0], begins=True)
    streams.add(1, rows[1], ends=True)
    assert streams.add(1, rows[2]).frames == 1
    again = streams.add(1, rows[0], begins=True)
    assert again.frames == 1 and (again.probabilities == rows[0]).all()


def test_a_network_with_other_classes_begins_anew() -> None:
    streams = Streams(RULES)
    streams.add(1, frames(1)[0], begins=True)
    other = frames(1, classes=9)[0]
    assert (streams.add(1, other).probabilities == other).all()


def test_one_too_many_is_refused_until_a_place_is_free() -> None:
    """By a stream that ends, or that has been idle for too long; one frame takes no place."""
    now, row = [0.0], frames(1)[0]
    streams = Streams(RULES, clock=lambda: now[0])
    for stream in (1, 2):
        streams.add(stream, row, begins=True)
    with pytest.raises(NoRoom, match=r"^2 streams are watched already; try again"):
        streams.add(3, row, begins=True)
    assert streams.add(3, row, begins=True, ends=True).frames == 1
    assert streams.add(1, row).frames == 2
    streams.add(1, row, ends=True)
    now[0] = 9
    assert streams.add(3, row, begins=True).frames == 1
    now[0] = 11  # the second has been idle since 0
    assert streams.add(4, row, begins=True).frames == 1
    assert streams.add(3, row).frames == 2
