"""How a candidate that answers copies of real requests compares with the live version."""

from collections import Counter as Tally
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec

SAME, DIFFERS, FAILED, LEFT_OUT = "same", "differs", "failed", "left out"
# Of each change of a label some requests; of different changes so many; and of the last times.
MOST_EXAMPLES, MOST_CHANGES, LAST_TIMES = 5, 200, 2000


class Compared(msgspec.Struct):
    """One request, by both."""

    model: str
    version: str
    outcome: str
    id: str = ""
    # What each says it is, by how much its probability moved, and how long each took.
    live: str = ""
    candidate: str = ""
    moved: float = 0.0
    seconds: tuple[float, float] = (0.0, 0.0)


@dataclass
class Shadow:
    """A candidate, so far."""

    counts: Tally[str] = field(default_factory=Tally)
    changes: Tally[tuple[str, str]] = field(default_factory=Tally)
    examples: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    moved: float = 0.0
    times: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LAST_TIMES))

    def add(self, compared: Compared) -> None:
        self.counts[compared.outcome] += 1
        if compared.outcome == LEFT_OUT:
            return
        change = compared.live, compared.candidate
        if compared.outcome != SAME and (
            change in self.changes or len(self.changes) < MOST_CHANGES
        ):
            self.changes[change] += 1
            known = self.examples.setdefault(change, [])
            if len(known) < MOST_EXAMPLES:
                known.append(compared.id)
        if compared.outcome != FAILED:
            self.moved += compared.moved
            self.times.append(compared.seconds)

    def sum_up(self, model: str, version: str) -> dict[str, Any]:
        """For the page."""
        most = self.changes.most_common(1)
        return {
            "model": model, "version": version, "counts": dict(self.counts),
            "most": most[0][0] if most else None,
        }  # fmt: skip

    def as_json(self, model: str, version: str) -> dict[str, Any]:
        changes = [
            {"live": live, "candidate": candidate, "count": count,
             "ids": self.examples[live, candidate]}
            for (live, candidate), count in self.changes.most_common()
        ]  # fmt: skip
        return {
            "model": model, "version": version, "counts": dict(self.counts), "changes": changes,
            "moved": self.moved, "seconds": list(self.times),
        }  # fmt: skip
