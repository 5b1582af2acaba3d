"""Two models on the same labelled items. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation.share import Z, round_up

# Beyond this many, the test's probability is that of a normal distribution.
MOST_EXACT = 1000
MOST_NEEDED = 10_000_000


@dataclass(frozen=True)
class Paired:
    """What only one of two got right."""

    only_first: int
    only_second: int
    of: int

    @classmethod
    def from_right(cls, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Paired:
        return cls(int((first & ~second).sum()), int((second & ~first).sum()), len(first))

    @property
    def drop(self) -> float:
        """By how much the second is right more seldom."""
        return (self.only_first - self.only_second) / self.of if self.of else 0.0

    @property
    def low(self) -> float:
        return max(-1.0, self._middle - Z * self._deviation)

    @property
    def high(self) -> float:
        return min(1.0, self._middle + Z * self._deviation)

    @property
    def _shares(self) -> tuple[float, float]:
        """One more of each, as Bonett and Price do: their interval holds with few items too."""
        return (self.only_first + 1) / (self.of + 2), (self.only_second + 1) / (self.of + 2)

    @property
    def _middle(self) -> float:
        first, second = self._shares
        return first - second

    @property
    def _deviation(self) -> float:
        return sqrt(self._variance / (self.of + 2))

    @property
    def _variance(self) -> float:
        first, second = self._shares
        return first + second - (first - second) ** 2

    @property
    def p(self) -> float:
        """McNemar's test: how likely so uneven a split is if both are equally good."""
        few, differing = min(self.only_first, self.only_second), self.only_first + self.only_second
        if differing == 0:
            return 1.0
        if differing > MOST_EXACT:
            off = (abs(self.only_first - self.only_second) - 1) / sqrt(differing)
            return erfc(max(0.0, off) / sqrt(2))
        below = sum(comb(differing, number) for number in range(few + 1))
        return min(1.0, float(2 * below / 2**differing))

    def judge(self, most_drop: float) -> str:
        """`worse`: by more than this, with 95% certainty. `better`, `equal`: not worse by so
        much. Else `undecided`."""
        if self.low > most_drop:
            return "worse"
        if self.high < 0:
            return "better"
        return "equal" if self.high <= most_drop else "undecided"

    def count_needed(self, most_drop: float) -> int | None:
        """About how many items would decide, if they differ as much; None: too many."""
        short = abs(most_drop - self.drop)
        if not short or (needed := ceil(Z * Z * self._variance / short**2)) > MOST_NEEDED:
            return None
        return max(round_up(needed), self.of + 1)

    def __str__(self) -> str:
        points = [-100 * each for each in (self.drop, self.high, self.low)]
        return "{:+.1f} points ({:+.1f} to {:+.1f})".format(*(each + 0.0 for each in points))


def list_losses(
    truth: NDArray[np.int64],
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
    classes: Sequence[str],
    most: int = 5,
) -> list[str]:
    """The classes that the second got right more seldom, the largest loss first."""
    off = np.bincount(truth, first.astype(int) - second.astype(int), len(classes)).astype(int)
    there = np.bincount(truth, minlength=len(classes))
    worst = [int(each) for each in np.argsort(-off, kind="stable") if off[each] > 0][:most]
    kept = np.bincount(truth, second, len(classes)).astype(int)
    return [
        f"{classes[each]} {kept[each] + off[each]} -> {kept[each]} of {there[each]}"
        for each in worst
    ]
