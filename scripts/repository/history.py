"""What happened to a pipeline's versions, in order: history.jsonl beside them.

A switch, or a `make up` with another version, records its beginning and its end. One without an
end was interrupted.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, live

NAME = "history.jsonl"
# The events of all pipelines, in the live repository.
SHOWN = "history.json"

# How a switch ends.
SERVES, STAYED = "serves", "stayed"
BEGINS = "begins"
PUBLISHED = "published"
REMOVED = "removed"
EVALUATED = "evaluated"
# Why a version was not switched to, though it was not rejected.
INTERRUPTED, CUT_OFF = BROKEN_OFF = "interrupted", "cut off"
# Of tries that switch nothing.
SHADOW, REPLAY = UNSEEN = "shadow", "replay"


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
        return _parse_events(pipeline, path(pipeline).read_bytes(), str(path(pipeline)))
    except FileNotFoundError:
        return []


def _parse_events(pipeline: Pipeline, content: bytes, where: str) -> list[Event]:
    events = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            event = Event(**json.loads(line))
            if not isinstance(event.version, int):
                raise TypeError
            events.append(event)
        except (ValueError, TypeError):
            raise UserError(
                f"{where}, line {number}, cannot be read",
                "remove that line; what was live by it is back with "
                f"make rollout{pipeline.option} VERSION=",
            ) from None
    return events


def add(pipeline: Pipeline, what: str, version: int, how: str, note: str = "") -> None:
    """Appends atomically: a truncated line would break every later reader."""
    events = read(pipeline)
    if what == PUBLISHED and waiting(events) == version:
        return  # it was published before, and nothing has changed
    events.append(Event(datetime.now(UTC).isoformat(timespec="seconds"), what, version, how, note))
    content = "".join(json.dumps(asdict(each)) + "\n" for each in events)
    files.write(path(pipeline), content, lasting=True)
    show(pipeline)


def has_more(pipeline: Pipeline, content: bytes) -> bool:
    """Whether it goes on after this: what could not be uploaded when it was recorded."""
    file = path(pipeline)
    known = file.read_bytes() if file.exists() else b""
    return known != content and known.startswith(content)


def replace(pipeline: Pipeline, content: bytes, where: str) -> None:
    """Replaces it by a history with another machine's additions."""
    _parse_events(pipeline, content, where)
    files.write_bytes(path(pipeline), content, lasting=True)
    show(pipeline)


def show(pipeline: Pipeline) -> None:
    """To the door, which sees no other folder than the live repository. Of a pipeline that was
    removed nothing."""
    shown = live.REPOSITORY / SHOWN
    try:
        events = dict(json.loads(shown.read_bytes()))
        changed = [pipeline]
    except (OSError, ValueError, TypeError):  # not there yet, or damaged
        events, changed = {}, [each for each in pipelines.every() if path(each).exists()]
    events |= {each.ensemble: [asdict(event) for event in read(each)] for each in changed}
    told = {name: each for name, each in events.items() if each}
    files.write(shown, json.dumps(told) + "\n")


def serving(events: Sequence[Event]) -> int | None:
    """The live version, whether or not a server is running."""
    return next((event.version for event in reversed(events) if event.what == SERVES), None)


def waiting(events: Sequence[Event]) -> int | None:
    """The last version that was published since something went live: perhaps an earlier one."""
    for event in reversed(events):
        if event.what in (PUBLISHED, SERVES):
            return event.version if event.what == PUBLISHED else None
    return None


def find_gone_back_from(events: Sequence[Event]) -> list[int]:
    """The versions that the live one came after, when it was gone back to; else none."""
    *earlier, last = [0, *(event.version for event in events if event.what == SERVES)]
    if last not in earlier:
        return []
    return earlier[len(earlier) - earlier[::-1].index(last) :]


def find_previous(events: Sequence[Event]) -> int | None:
    """The previous version. A rollback does not count as a step to go back from."""
    served: list[int] = []
    for event in events:
        if event.what != SERVES:
            continue
        if event.how == "rollback" and event.version in served:
            del served[len(served) - served[::-1].index(event.version) :]
        elif not served or served[-1] != event.version:
            served.append(event.version)
    return served[-2] if len(served) > 1 else None


def cut_off(events: Sequence[Event]) -> Event | None:
    """The switch that began and did not end, if any."""
    last = next((e for e in reversed(events) if e.what in (BEGINS, SERVES, STAYED)), None)
    return last if last and last.what == BEGINS else None


def explain(fault: BaseException) -> str:
    """Why a version was not switched to."""
    if isinstance(fault, KeyboardInterrupt):
        return INTERRUPTED
    said = getattr(fault, "reason", "") or getattr(fault, "cause", "")
    return str(said or type(fault).__name__)


def describe(event: Event) -> str:
    note = f": {event.note}" if event.note else ""
    return f"{_became(event)} ({event.how}){note}"


def _became(event: Event) -> str:
    if event.what == SERVES and event.how == "rollback":
        return f"rolled back to version {event.version}"
    if event.what == STAYED and event.how in UNSEEN and event.note not in BROKEN_OFF:
        return f"version {event.version} tried unseen"
    phrases = {
        PUBLISHED: "published",
        REMOVED: "removed",
        EVALUATED: "evaluated",
        BEGINS: "started",
        SERVES: "live",
        STAYED: "stopped" if event.note in BROKEN_OFF else "rejected",
    }
    return f"version {event.version} {phrases[event.what]}"
