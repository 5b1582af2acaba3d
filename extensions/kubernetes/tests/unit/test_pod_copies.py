"""Which copies no pod can want any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from extensions.kubernetes import pod_copies


@dataclass
class Stored:
    modified: datetime
    size: int = 5


@dataclass
class Times:
    """A folder elsewhere: how many days ago each of its files was written."""

    days: dict[str, int]

    def list_stored(self) -> dict[str, Stored]:
        now = datetime.now(UTC)
        return {key: Stored(now - timedelta(days=n, hours=1)) for key, n in self.days.items()}

    def remove(self, prefix: str) -> None:
        for key in [key for key in self.days if key.startswith(prefix)]:
            del self.days[key]


def test_of_copies_for_pods_the_last_stay() -> None:
    """Whatever is among the last, or was named not long ago."""
    days = {"again/1/model": 90, "again.named": 1}
    for number in range(30):
        days[f"copy{number:02}/config.pbtxt"] = 10 + number
        days[f"copy{number:02}/1/model"] = 10 + number
    days["copy29.named"] = 39
    there: Any = Times(days)
    found = [*pod_copies.read(there)]
    assert [(each.name, each.days) for each in found[:2]] == [("again", 1), ("copy00", 10)]
    assert [each.is_among_the_last for each in found] == [True] * 11 + [False] * 20
    assert found[1].size == 10
    for name in ("copy29", "copy28"):
        pod_copies.remove(there, name)
    assert not any("copy29" in key or "copy28" in key for key in days)
    assert [each.name for each in pod_copies.read(there)] == [each.name for each in found[:-2]]
