"""The keeper's notes for others: files in the run folder, each written atomically.

keeper.json   for the door, `make status`, and the next keeper
coming.json   for the door: what a fresh server has not loaded yet
"""

import json
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bundle_serving.process import server_log

STATE, COMING = "keeper.json", "coming.json"
# Make's, beside the admin key.
BESIDE = "beside.json"

# What can be restored, from the smallest to the largest.
STOPPED, MODEL, DOOR, SERVER = RESTORED = "stopped_process", "model", "door", "server"

KEPT_EVENTS = 20
KINDS = {
    "ready": bool, "reason": str, "lacking": list, "restored": dict, "events": list,
    "extra_pipelines": list,
}  # fmt: skip


@dataclass
class Notes:
    folder: Path
    ready: bool = False
    reason: str = "it is starting"
    times_ready: int = 0
    are_new: bool = True  # no earlier keeper of this server has any
    extra_pipelines: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)  # models with fewer processes than they need
    coming: list[str] = field(default_factory=list)  # what is still to be loaded
    _restored: Counter[str] = field(default_factory=Counter)
    _events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    _written: dict[str, str] = field(default_factory=dict)

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Continues the notes of an earlier keeper."""
        notes = cls(folder)
        before = read(folder)
        notes.are_new = not before
        notes.extra_pipelines = before.get("extra_pipelines", [])
        notes._restored.update(before.get("restored", {}))
        notes._events.extend(before.get("events", []))
        notes.say(False, notes.reason)
        return notes

    def say(self, ready: bool, reason: str = "") -> None:
        """Notes whether requests are answered."""
        self.times_ready += ready
        if (ready, reason) == (self.ready, self.reason) and ready:
            self._mend()
            return
        self.ready, self.reason = ready, reason
        self._save()

    def note_restored(self, what: str, message: str) -> None:
        log(message)
        self._restored[what] += 1
        self._events.append({"at": round(time.time()), "did": message})
        self._save()

    def remember(self, extra_pipelines: list[str]) -> None:
        if extra_pipelines != self.extra_pipelines:
            self.extra_pipelines = extra_pipelines
            self._save()

    def announce(self, models: list[str]) -> None:
        """Who asks for one of these is to wait for it."""
        self.coming = models
        self._write(COMING, json.dumps(models, ensure_ascii=False))

    def lacks(self, models: list[str]) -> None:
        if models != self.lacking:
            self.lacking = models
            self._save()

    def _save(self) -> None:
        state = {
            "ready": self.ready,
            "reason": self.reason,
            "lacking": self.lacking,
            "restored": self._restored,
            "events": list(self._events),
            "extra_pipelines": self.extra_pipelines,
        }
        self._write(STATE, json.dumps(state, indent=2) + "\n")

    def _mend(self) -> None:
        """Somebody else may have written to a file, or removed it."""
        for name, content in self._written.items():
            file = self.folder / name
            with suppress(OSError):
                if not (file.exists() and file.read_bytes() == content.encode()):
                    log(f"{name} was damaged: wrote it again")
                    self._write(name, content)

    def _write(self, name: str, content: str) -> None:
        self._written[name] = content
        draft = self.folder / f".{name}.new"
        with suppress(OSError):  # a full disk is no reason to exit
            draft.write_text(content)
            draft.replace(self.folder / name)


def read(folder: Path) -> dict[str, Any]:
    """The notes of a run folder's keeper; empty if there are none."""
    try:
        return parse_notes((folder / STATE).read_bytes())
    except OSError:
        return {}


def read_coming(folder: Path) -> list[str]:
    """The pipelines and models that the keeper is about to load."""
    return _read_names(folder / COMING) or []


def read_loaded_beside(folder: Path) -> list[str] | None:
    """The pipelines and models that make has loaded besides the main pipeline; None if that is not
    noted there."""
    return _read_names(folder / BESIDE)


def _read_names(file: Path) -> list[str] | None:
    try:
        return list(map(str, json.loads(file.read_bytes())))
    except (OSError, ValueError, TypeError):
        return None


def parse_notes(text: bytes) -> dict[str, Any]:
    """Empty as well if it is not what a keeper writes."""
    try:
        state = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(state, dict):
        return {}
    right = all(isinstance(state.get(name, kind()), kind) for name, kind in KINDS.items())
    return state if right else {}


def readiness(folder: Path) -> tuple[bool, str] | None:
    """Whether requests are answered, and why not. None if no keeper says so."""
    noted = read(folder)
    return (noted["ready"], noted.get("reason", "")) if "ready" in noted else None


def forget(folder: Path) -> None:
    for name in (STATE, COMING):
        (folder / name).unlink(missing_ok=True)


def log(text: str) -> None:
    server_log.log("keeper", text)
