"""A share of so many, and where it lies with 95% certainty. Without numpy, which takes its time."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

# Of a normal distribution, 95% lies within so many deviations.
Z = 1.959964


def round_up(number: int) -> int:
    """To two digits."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


@dataclass(frozen=True)
class Share:
    """`count` of `of`, with Wilson's interval."""

    count: int
    of: int

    @property
    def value(self) -> float:
        return self.count / self.of if self.of else float("nan")

    @property
    def low(self) -> float:
        return self._ends[0]

    @property
    def high(self) -> float:
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[float, float]:
        if not self.of:
            return 0.0, 1.0
        n, p = self.of, self.value
        middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
        half = Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
        return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {100 * self.high:.1f})"
