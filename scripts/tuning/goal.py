"""The goal of a search, and which of two servers is closer to it. Pure functions on figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from scripts.measuring.measurement import Measurement

# A smaller lead may be chance.
LEAD = 1.03


@dataclass(frozen=True)
class Score:
    """One server's answers per second over all kinds of pictures, and the slowest kind's p95."""

    concurrency: int
    throughput: float
    p95: float

    def __str__(self) -> str:
        return (
            f"{self.throughput:.1f} answers per second at p95 {self.p95:.0f} ms, "
            f"{self.concurrency} at a time"
        )

    @classmethod
    def from_measurements(cls, concurrency: int, measurements: Sequence[Measurement]) -> Score:
        """Failed rounds are skipped; if all failed, the score is zero."""
        rates = [each.throughput.median for each in measurements]
        if not all(rates):
            return cls(concurrency, 0.0, float("inf"))
        return cls(
            concurrency, geometric_mean(rates), max(each.p95.median for each in measurements)
        )


@dataclass(frozen=True)
class Goal:
    latency_ms: float | None  # the limit for p95; None: maximum throughput

    def __str__(self) -> str:
        if self.latency_ms is None:
            return "the most answers per second"
        return f"the most answers per second with 95% of the answers within {self.latency_ms:g} ms"

    def concurrencies(self, cores: int) -> list[int]:
        """Concurrencies to try: enough to keep a server busy; with a limit, increasing ones."""
        busy = 4 * cores
        return [busy] if self.latency_ms is None else sorted({1, cores, 2 * cores, busy})

    def is_met(self, score: Score) -> bool:
        return self.latency_ms is None or score.p95 <= self.latency_ms

    def best(self, scores: Sequence[Score]) -> Score:
        """The best of one server's scores at several concurrencies."""
        meeting = [score for score in scores if self.is_met(score)]
        if meeting:
            return max(meeting, key=lambda score: score.throughput)
        return min(scores, key=lambda score: score.p95)

    def beats(self, challenger: Score, best: Score) -> bool:
        if self.is_met(challenger) != self.is_met(best):
            return self.is_met(challenger)
        if self.is_met(best):
            return challenger.throughput > best.throughput * LEAD
        return challenger.p95 * LEAD < best.p95
