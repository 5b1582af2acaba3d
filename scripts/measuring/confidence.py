"""How sure a figure is that was measured several times. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
OUTSIDE = 0.025  # on either side


@dataclass(frozen=True)
class Estimate:
    """A median, and where it lies with 95% certainty: 19 in 20 of the medians of rounds drawn again
    and again from those that were measured (bootstrap). Of three rounds, from lowest to highest."""

    median: float
    low: float
    high: float

    @classmethod
    def from_rounds(cls, rounds: Sequence[float]) -> Estimate:
        return cls._from_resampled(float(np.median(rounds)), _medians(rounds, seed=0))

    @classmethod
    def ratio(cls, rounds: Sequence[float], others: Sequence[float]) -> Estimate:
        """Of two things that were measured in turn: what disturbed a round disturbed both."""
        return cls.from_rounds([one / other for one, other in zip(rounds, others, strict=True)])

    @classmethod
    def ratio_of(cls, rounds: Sequence[float], others: Sequence[float]) -> Estimate:
        """The ratio of two things that were measured at different times."""
        middle = float(np.median(rounds) / np.median(others))
        return cls._from_resampled(middle, _medians(rounds, seed=0) / _medians(others, seed=1))

    @classmethod
    def _from_resampled(cls, middle: float, resampled: NDArray[np.float64]) -> Estimate:
        low, high = np.quantile(resampled, (OUTSIDE, 1 - OUTSIDE), method="nearest")
        return cls(middle, float(low), float(high))

    @property
    def share(self) -> float:
        """The width of what is uncertain."""
        return (self.high - self.low) / self.median if self.median else 0.0

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def spread(ratios: Sequence[float]) -> str:
    """From the smallest to the largest, in words."""
    low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    return low if low == high else f"{low} to {high}"


def _medians(rounds: Sequence[float], seed: int) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    drawn = np.asarray(rounds, float)[random.integers(0, len(rounds), (RESAMPLES, len(rounds)))]
    medians: NDArray[np.float64] = np.median(drawn, axis=1)
    return medians
