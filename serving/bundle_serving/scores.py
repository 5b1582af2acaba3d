"""A network's scores -> probabilities. Pure functions: no Triton here."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


class ScoresError(ValueError):
    """The network's output is not a score."""


def softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores [batch, classes] -> probabilities of the same shape.

    An array of cupy stays on its GPU: numpy's functions hand it on to cupy's (NEP 13).
    """
    _require_finite(scores)
    with np.errstate(over="ignore"):  # minus infinity, whose exponential is 0 as intended
        exponentials: NDArray[Any] = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities: NDArray[np.float32] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probabilities.astype(np.float32, copy=False)


def sigmoid(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores of labels that do not exclude each other -> their probabilities."""
    _require_finite(scores)
    with np.errstate(over="ignore"):  # infinity, whose inverse is 0 as intended
        probabilities: NDArray[np.float32] = np.reciprocal(1 + np.exp(-scores))
    return probabilities


def independent(probabilities: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of a network whose labels do not exclude each other, the output itself."""
    _require_finite(probabilities)
    return probabilities


Reading: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.float32]]

# How the output of a network is read, by what it answers.
READINGS: dict[str, Reading] = {"single-label": softmax, "multi-label": independent}


def _require_finite(scores: NDArray[np.float32]) -> None:
    if not np.isfinite(scores).all():
        # Triton's sort by probability is undefined for NaN.
        raise ScoresError("the network's output contains NaN or infinity; its weights are damaged")
