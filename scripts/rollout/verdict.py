"""Decides whether a new version may replace the old one. Pure functions on measurements."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log

import numpy as np

from scripts.evaluation.sequential import (
    CERTAINTY,
    count_needed,
    count_share,
    find_lower_bound,
    find_quantile_bounds,
    find_upper_bound,
)
from scripts.rollout.stream import Answer

# With fewer answers, p99 means nothing.
FEW = 50
# After so many, a fault in one request of RARE has been met with this certainty.
RARE = 50
ENOUGH = ceil(log(1 - CERTAINTY) / log(1 - 1 / RARE))
# A few milliseconds more do no harm, even if that is many times as much.
SLACK_MS = 20


@dataclass(frozen=True)
class Figures:
    asked: int
    failed: int
    p50: float
    p99: float
    # Between which p99 lies, with a certainty each.
    low: float
    high: float

    @classmethod
    def from_answers(cls, answers: Sequence[Answer]) -> Figures:
        times = [answer.ms for answer in answers if answer.gist is not None]
        p50, p99 = np.percentile(times, [50, 99]) if times else (np.inf, np.inf)
        failed = sum(answer.gist is None for answer in answers)
        return cls(len(answers), failed, float(p50), float(p99), *find_quantile_bounds(times, 0.99))

    def __str__(self) -> str:
        return (
            f"{self.failed} of {self.asked:,} failed, p50 {self.p50:.0f} ms, p99 {self.p99:.0f} ms"
        )

    def describe_certainty(self, asked: int) -> str:
        """Errors of all that it was asked so far: before these there was none."""
        errors = 100 * find_upper_bound(count_share(self.failed, asked))
        told = f"with {100 * CERTAINTY:g}% certainty at most {errors:.1f}% errors in {asked:,}"
        if isfinite(self.high):
            return f"{told}, and a p99 of at most {self.high:.0f} ms"
        needed = count_needed(0.01, count_share(0, max(self.asked, 1))) or 0
        return f"{told} (of its p99: from about {needed:,} answers)"


def is_certain(old: Figures, new: Figures, max_p99_ratio: float) -> bool:
    """That it is fast enough, however many answers there may still be."""
    return not old.failed and new.high <= max_p99_ratio * old.low + SLACK_MS


def is_undecided(old: Figures, new: Figures, max_p99_ratio: float) -> bool:
    """On a slow or busy machine answers are few, which is neither version's fault."""
    if new.failed or old.failed or new.asked >= FEW:
        return False
    return not new.asked or new.p50 <= _allowed_p99(old, max_p99_ratio)


def objection(old: Figures, new: Figures, max_p99_ratio: float) -> str | None:
    """None if the new version is fine; otherwise the objection in one line."""
    if new.failed:
        return f"{new.failed} of {new.asked:,} requests failed"
    if old.failed:
        return f"{old.failed} of {old.asked:,} requests to the live version failed"
    allowed = _allowed_p99(old, max_p99_ratio)
    if new.p99 > allowed:
        bound = f"MAX_P99_RATIO={max_p99_ratio:g} allows {allowed:.0f}"
        return f"p99 {old.p99:.0f} -> {new.p99:.0f} ms, and {bound}"
    return None


def _allowed_p99(old: Figures, max_p99_ratio: float) -> float:
    return max_p99_ratio * old.p99 + SLACK_MS


@dataclass(frozen=True)
class Seen:
    """What servers answered all clients in the last minute, without what was refused."""

    asked: int
    failed: int

    def __add__(self, other: Seen) -> Seen:
        return Seen(self.asked + other.asked, self.failed + other.failed)

    def objection(self, others: Seen) -> str | None:
        """To these servers, beside others."""
        if self.failed * max(others.asked, 1) <= others.failed * max(self.asked, 1):
            return None
        of_others = f", of the others' {others.failed} of {others.asked:,}" if others.asked else ""
        return f"{self.failed} of {self.asked:,} requests of clients failed{of_others}"


@dataclass(frozen=True)
class Agreement:
    """How both versions answered the same requests."""

    same: int
    questions: int

    @classmethod
    def from_gists(cls, old: Sequence[Hashable], new: Sequence[Hashable]) -> Agreement:
        return cls(sum(one == other for one, other in zip(old, new, strict=True)), len(old))

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.same + other.same, self.questions + other.questions)

    def __str__(self) -> str:
        low, high = self._bounds
        certain = f"with {100 * CERTAINTY:g}% certainty to {low:.0%} to {high:.0%} of such"
        return f"the same answer to {self.same} of {self.questions} requests, {certain}"

    @property
    def _bounds(self) -> tuple[float, float]:
        share = count_share(self.same, self.questions)
        return find_lower_bound(share), find_upper_bound(share)

    def is_certain(self, least_percent: float) -> bool:
        """That it is enough, or not, however many more are asked."""
        low, high = self._bounds
        return 100 * low >= least_percent or 100 * high < least_percent

    def enough(self, least_percent: float) -> bool:
        return 100 * self.same >= least_percent * self.questions
