"""Figures of kinds whose answers are no classes: what their folder computes, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation.labelled import Item

RESAMPLES = 100
OUTSIDE = 0.025  # on either side


@dataclass(frozen=True)
class Interval:
    """A mean over items, and where it lies for items drawn again (bootstrap)."""

    value: float
    low: float
    high: float

    @classmethod
    def of_drawn(cls, count: int, compute: Callable[[NDArray[np.int64]], float]) -> Interval:
        """`compute` takes how often each item was drawn."""
        random, value = np.random.default_rng(0), compute(np.ones(count, np.int64))
        drawn = [
            compute(np.bincount(random.integers(0, count, count), minlength=count))
            for _ in range(RESAMPLES)
        ]
        low, high = np.nanquantile(drawn, (OUTSIDE, 1 - OUTSIDE))
        return cls(value, min(value, float(low)), max(value, float(high)))

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Measured:
    figures: Mapping[str, Interval]  # the one that counts first
    classes: Mapping[str, float]  # each class's part of that one
    items: int
    refused: Mapping[str, str]  # item -> why

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Apart(Protocol):
    """Labelled data of such a kind."""

    @property
    def items(self) -> Sequence[Item]: ...

    def ask(self, client: Any, model: str, item: Item) -> Any:
        """By the bundle's client."""

    def measure(self, answers: Sequence[Any], refused: Mapping[str, str]) -> Measured:
        """`answers`: of each item, in order; None of one that could not be read."""

    def compute_first(self, answers: Sequence[Any]) -> Callable[[NDArray[np.int64]], float]:
        """The figure that counts first, of each item that has an answer so many times."""
