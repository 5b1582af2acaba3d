"""Which copies no pod can want any more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from extensions.kubernetes import prune
from scripts.base.disk import Item
from scripts.repository import place
from scripts.settings.settings import Settings


@dataclass
class Stored:
    modified: datetime
    size: int = 5


@dataclass
class Times:
    """A folder elsewhere: how many days ago each of its files was written."""

    days: dict[str, int]
    title, prefix = "S3", "kubernetes/"

    def open(self) -> Times:
        return self

    def place_beside(self, what: str) -> Times:
        return self

    def list_stored(self) -> dict[str, Stored]:
        now = datetime.now(UTC)
        return {key: Stored(now - timedelta(days=n, hours=1)) for key, n in self.days.items()}

    def remove(self, prefix: str) -> None:
        for key in [key for key in self.days if key.startswith(prefix)]:
            del self.days[key]


def test_of_copies_for_pods_the_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is among the last, or was named not long ago."""
    days = {"again/1/model": 90, "again.named": 1}
    for number in range(30):
        days[f"copy{number:02}/config.pbtxt"] = 10 + number
        days[f"copy{number:02}/1/model"] = 10 + number
    days["copy29.named"] = 39
    monkeypatch.setattr(place, "find", lambda settings: Times(days))

    def find(not_older: int = 0) -> list[Item]:
        return [*prune.find_items(Settings.load({}, Path("/none")), not_older)]

    found = find()
    names = [("kubernetes/again on S3", 1), ("kubernetes/copy00 on S3", 10)]
    assert [(each.what, each.days) for each in found[:2]] == names
    assert [bool(each.why) for each in found] == [False] * 11 + [True] * 20
    assert [bool(each.why) for each in find(not_older=30)] == [False] * 21 + [True] * 10
    assert found[1].size == 10
    for each in found[:-3:-1]:
        each.remove()
    assert not any("copy29" in key or "copy28" in key for key in days)
    assert [each.what for each in find()] == [each.what for each in found[:-2]]
