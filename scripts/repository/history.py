"""What happened to a pipeline's versions, in the order of time: history.jsonl beside them.

A switch writes that it begins, and how it ended. One that has not ended was cut off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.base import files
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive

NAME = "history.jsonl"

# What ends a switch that has begun.
SERVES, STAYED = "serves", "stayed"
BEGINS = "begins"
PUBLISHED = "published"
# Why a version stayed where nothing spoke against it.
INTERRUPTED, CUT_OFF = BROKEN_OFF = "interrupted", "cut off"


@dataclass(frozen=True)
class Event:
    time: str
    what: str
    version: int
    how: str  # the command
    note: str = ""


def path(pipeline: Pipeline) -> Path:
    return archive.home(pipeline) / NAME


def read(pipeline: Pipeline) -> list[Event]:
    try:
        lines = path(pipeline).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [Event(**json.loads(line)) for line in lines]


def add(pipeline: Pipeline, what: str, version: int, how: str, note: str = "") -> None:
    """Whole or not at all: a line that is cut off would be read by all who come after."""
    event = Event(datetime.now(UTC).isoformat(timespec="seconds"), what, version, how, note)
    events = [*read(pipeline), event]
    files.write(path(pipeline), "".join(json.dumps(asdict(each)) + "\n" for each in events))


def replace(pipeline: Pipeline, told: str) -> None:
    """By what another machine had to add."""
    files.write(path(pipeline), told)


def serving(events: Iterable[Event]) -> int | None:
    """The version that serves, or would if a server were up."""
    return next((event.version for event in _backwards(events) if event.what == SERVES), None)


def before(events: Iterable[Event]) -> int | None:
    """The version that served before the one that serves: a way back is not itself undone."""
    served: list[int] = []
    for event in events:
        if event.what != SERVES:
            continue
        if event.how == "rollback" and event.version in served:
            del served[served.index(event.version) + 1 :]
        elif not served or served[-1] != event.version:
            served.append(event.version)
    return served[-2] if len(served) > 1 else None


def cut_off(events: Iterable[Event]) -> Event | None:
    """The switch that began and did not end."""
    last = next((e for e in _backwards(events) if e.what in (BEGINS, SERVES, STAYED)), None)
    return last if last and last.what == BEGINS else None


def _backwards(events: Iterable[Event]) -> list[Event]:
    return list(reversed(list(events)))
