"""What may be said of a stream of answers at any moment of it, with a stated certainty.

Intervals for a fixed number of answers are wrong more often than they say once somebody looks at
them again and again and stops when he likes what he sees. These hold at all moments together: what
is claimed of one stream is wrong with a probability of at most 1 - CERTAINTY, whenever it stops.

- A mean: bets against each value that it might have, a mixture of constant ones ("grid Kelly" in
  Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86,
  2024). Who bets against the truth has at most one chance in 100 of ever having 100 times his stake
  (Ville's inequality), so a value that such a bet has won against is not the mean.
- A quantile: the same of the answers that lie above it (Howard and Ramdas, "Sequential estimation
  of quantiles with applications to A/B testing and best-arm identification", Bernoulli 28, 2022).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation.share import round_up

CERTAINTY = 0.99
ENOUGH = -log(1 - CERTAINTY)  # the logarithm of what a bet must have won
MOST_NEEDED = 10_000_000
# How much of what it has each bet stakes: small ones win slowly against what is nearly true.
STAKES = np.geomspace(0.03, 0.9, 9)
HALVINGS = 40

# How often each value was seen, from 0 to 1; fractions of a count only plan what is to be asked.
Counts = Mapping[float, float]


def win_against(mean: float, counts: Counts) -> float:
    """The logarithm of what was won by bets against a mean of this or more."""
    if mean >= 1:
        return inf if any(value < 1 for value, count in counts.items() if count) else 0.0
    logs = np.zeros(len(STAKES))
    for value, count in counts.items():
        logs += count * np.log1p(STAKES * ((1 - value) / (1 - mean) - 1))
    most = logs.max()
    return float(most + np.log(np.exp(logs - most).mean()))


def find_upper_bound(counts: Counts) -> float:
    """The mean is at most this."""
    return _find_first(lambda mean: win_against(mean, counts) >= ENOUGH, 1.0)


def find_lower_bound(counts: Counts) -> float:
    return 1 - find_upper_bound(_turn(counts))


def _turn(counts: Counts) -> dict[float, float]:
    return {1 - value: count for value, count in counts.items()}


def count_needed(mean: float, counts: Counts) -> int | None:
    """About how many answers like these tell on which side of this the mean is; None: too many."""
    total = sum(counts.values())

    def is_told(times: float) -> bool:
        more = {value: times * count for value, count in counts.items()}
        turned = win_against(1 - mean, _turn(more))
        return max(win_against(mean, more), turned) >= ENOUGH

    most = MOST_NEEDED / max(total, 1)
    if not total or not is_told(most):
        return None
    return round_up(ceil(_find_first(is_told, most) * total))


def _find_first(holds: Callable[[float], bool], most: float) -> float:
    """The first number from 0 for which it holds, as for all above."""
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def count_share(count: int, of: int) -> Counts:
    return {1.0: count, 0.0: of - count}


@dataclass(frozen=True)
class Drop:
    """By how much the second of two is right more seldom: of so many answers to the same requests,
    some only the first has right, some only the second."""

    only_first: int
    only_second: int
    of: int

    def add(self, first: bool, second: bool) -> Drop:
        only_first, only_second = first and not second, second and not first
        return Drop(self.only_first + only_first, self.only_second + only_second, self.of + 1)

    @property
    def high(self) -> float:
        return 2 * find_upper_bound(self._counts) - 1

    @property
    def low(self) -> float:
        return 2 * find_lower_bound(self._counts) - 1

    @property
    def _counts(self) -> Counts:
        same = self.of - self.only_first - self.only_second
        return {1.0: self.only_first, 0.5: same, 0.0: self.only_second}

    def judge(self, most: float) -> str:
        """`worse`: by more than this. `fine`: not by so much. Else `undecided`."""
        middle = (most + 1) / 2
        if win_against(middle, self._counts) >= ENOUGH:
            return "fine"
        is_worse = win_against(1 - middle, _turn(self._counts)) >= ENOUGH
        return "worse" if is_worse else "undecided"

    def count_needed(self, most: float) -> int | None:
        """How many more."""
        whole = count_needed((most + 1) / 2, self._counts)
        return None if whole is None else max(whole - self.of, 1)

    def __str__(self) -> str:
        if self.low > 0:
            return f"at least {100 * self.low:.1f} points worse"
        if self.high < 0:
            return f"at least {-100 * self.high:.1f} points better"
        return f"at most {100 * self.high:.1f} points worse"


def find_quantile_bounds(
    values: Sequence[float] | NDArray[np.float64], share: float
) -> tuple[float, float]:
    """Between which the quantile lies, each end with this certainty; infinite where so few values
    say nothing of it."""
    ordered = np.sort(np.asarray(values, float))
    count = len(ordered)

    def loses_below(above: int) -> bool:
        """That fewer than 1 - share lie above, where so many do."""
        return win_against(1 - share, count_share(above, count)) < ENOUGH

    def wins_above(above: int) -> bool:
        return win_against(share, count_share(count - above, count)) >= ENOUGH

    few = bisect_left(range(count + 1), True, key=loses_below) - 1
    many = bisect_left(range(count + 1), True, key=wins_above)
    low = float(ordered[count - many]) if 0 < many <= count else -inf
    return low, float(ordered[count - 1 - few]) if 0 <= few < count else inf
