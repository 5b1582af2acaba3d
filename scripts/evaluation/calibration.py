"""Whether a model is right as often as it is sure. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation.scores import Answers
from scripts.evaluation.share import Share

BINS = 15  # as in Guo et al., 2017
RESAMPLES = 1000
OUTSIDE = 0.025  # on either side
# With more, a resample is as good as this many.
MOST_RESAMPLED = 20_000


@dataclass(frozen=True)
class Bin:
    low: float
    high: float
    confidence: float  # the mean
    right: Share


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error, with the interval of items drawn again (bootstrap)."""

    error: float
    low: float
    high: float
    bins: list[Bin]

    def __str__(self) -> str:
        return f"{self.error:.3f} ({self.low:.3f} to {self.high:.3f})"


def measure_calibration(answers: Answers) -> Calibration:
    sure, right = answers.confidence.clip(0, 1), answers.right
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    error = _error(place, sure - right, len(right))
    random, count = np.random.default_rng(0), min(len(right), MOST_RESAMPLED)
    drawn = []
    for _ in range(RESAMPLES):
        some = random.integers(0, len(right), count)
        drawn.append(_error(place[some], (sure - right)[some], count))
    # Chance alone makes an error of a resample larger than that of what it was drawn from: the
    # interval is reflected at it.
    upper, lower = np.quantile(drawn, (1 - OUTSIDE, OUTSIDE))
    low, high = 2 * error - float(upper), 2 * error - float(lower)
    low, high = min(max(low, 0.0), error), max(min(high, 1.0), error)
    return Calibration(error, low, high, _bins(place, sure, right))


def _error(place: NDArray[np.int64], off: NDArray[np.float64], count: int) -> float:
    return float(np.abs(np.bincount(place, off, BINS)).sum() / count)


def _bins(
    place: NDArray[np.int64], sure: NDArray[np.float64], right: NDArray[np.bool_]
) -> list[Bin]:
    found = []
    for number in np.unique(place):
        inside = place == number
        share = Share(int(right[inside].sum()), int(inside.sum()))
        found.append(Bin(number / BINS, (number + 1) / BINS, float(sure[inside].mean()), share))
    return found
