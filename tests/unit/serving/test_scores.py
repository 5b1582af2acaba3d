from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bundle_serving.scores import ScoresError, softmax


def in_double(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    exponentials = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares


@pytest.mark.parametrize("spread", [0, 0.01, 1, 10, 50])
@pytest.mark.parametrize("shape", [(1, 1000), (7, 1000), (256, 2), (3, 1)], ids=str)
def test_like_the_softmax_in_double_precision(shape: tuple[int, int], spread: float) -> None:
    scores = np.random.default_rng(0).normal(5, spread, shape).astype(np.float32)
    probabilities = softmax(scores)
    assert probabilities.dtype == np.float32 and probabilities.shape == shape
    assert np.allclose(probabilities, in_double(scores), rtol=1e-5, atol=1e-9)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)


def test_each_row_is_on_its_own() -> None:
    scores = np.random.default_rng(1).normal(0, 10, (5, 1000)).astype(np.float32)
    for row, probabilities in zip(scores, softmax(scores), strict=True):
        assert np.array_equal(softmax(row[None])[0], probabilities)


def test_order_is_kept() -> None:
    scores = np.random.default_rng(2).permutation(np.linspace(-8, 8, 1000, dtype=np.float32))[None]
    assert np.array_equal(np.argsort(softmax(scores)), np.argsort(scores))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([3e38, -3e38, 0], [1, 0, 0]),
        ([-3e38, -3e38], [0.5, 0.5]),
        ([1e4, 1e4 - 1], [0.7310586, 0.2689414]),
        ([-1e-45, 1e-45], [0.5, 0.5]),
        ([0], [1]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_extremes(scores: list[float], expected: list[float]) -> None:
    assert np.allclose(softmax(np.array([scores], np.float32)), [expected], atol=1e-4)


def test_the_input_is_left_as_it_is() -> None:
    scores = np.array([[1, 2, 3]], np.float32)
    scores.setflags(write=False)
    softmax(scores)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_score_is_refused(bad: float) -> None:
    scores = np.zeros((4, 1000), np.float32)
    scores[2, 999] = bad
    with pytest.raises(ScoresError, match="NaN or infinity; its weights are damaged"):
        softmax(scores)


class Elsewhere(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that, like one on a GPU, is not to be had as numpy's."""

    def __init__(self, held: NDArray[np.float32]) -> None:
        self.held = held

    def __array__(self, *_: object) -> None:
        raise TypeError("implicit conversion to a numpy array is not allowed")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *arrays: object) -> Elsewhere:
        held = [each.held if isinstance(each, Elsewhere) else each for each in arrays]
        return Elsewhere(getattr(ufunc, method)(*held))

    def __getattr__(self, name: str) -> Any:  # all, max, sum, astype
        return lambda *words, **named: Elsewhere(getattr(self.held, name)(*words, **named))

    def __bool__(self) -> bool:
        return bool(self.held)


def test_an_array_of_another_library_stays_where_it_is() -> None:
    scores = np.random.default_rng(3).normal(0, 10, (5, 1000)).astype(np.float32)
    answered: Any = softmax(Elsewhere(scores))  # type: ignore[arg-type]
    assert isinstance(answered, Elsewhere)
    assert np.array_equal(answered.held, softmax(scores))
