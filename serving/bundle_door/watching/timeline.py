"""Where one request's time went, as the door and the steps have measured it; nothing is guessed.
What lies between two spans was spent waiting and on the way."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bundle_door.requests import Note, Request
from bundle_door.watching.steps import Followed, Report

TOKEN = re.compile(r"[\w.-]+", re.ASCII)
# A request's parameter: 1, and the answer has the times of its steps.
TIMINGS = "timings"


async def read_reports() -> None:
    """The steps have sent them before Triton had its answer: they are only to be read."""
    await asyncio.sleep(0)


async def read_timeline(request: Request, followed: Followed) -> Timeline:
    """Of a request that Triton has answered; its log line has the times, too."""
    await read_reports()
    timeline = Timeline(request, followed.reports)
    timeline.note(request.note)
    return timeline


class Timeline:
    def __init__(self, request: Request, reports: Sequence[Report]) -> None:
        self._began = request.arrived
        self._spans = [("received", "", request.arrived, request.complete, 1)]
        self._spans += [
            (each.model, each.version, each.began, each.ended, each.rows)
            for each in sorted(reports, key=lambda each: each.began)
        ]
        self._ended = time.monotonic_ns()

    def as_json(self) -> dict[str, Any]:
        return {
            "total_ms": milliseconds(self._ended - self._began),
            "spans": [
                {
                    "name": name,
                    **({"version": version} if version else {}),
                    "start_ms": milliseconds(began - self._began),
                    "ms": milliseconds(ended - began),
                    **({"batch": rows} if rows > 1 else {}),
                }
                for name, version, began, ended, rows in self._spans
            ],
        }

    def note(self, note: Note) -> None:
        """For the log: the steps, and what was spent in none."""
        (_, _, began, ended, _), *steps = self._spans
        note.received_ms = milliseconds(ended - began)
        for name, _, began, ended, _ in steps:
            note.steps[name] = round(note.steps.get(name, 0.0) + milliseconds(ended - began), 3)
        note.waited_ms = milliseconds(self._ended - self._began - self._busy())

    def _busy(self) -> int:
        """Steps may work at the same time."""
        busy, until = 0, self._began
        for _, _, began, ended, _ in self._spans:
            busy += max(0, ended - max(began, until))
            until = max(until, ended)
        return busy

    def header(self) -> dict[str, str]:
        """Server-Timing, which a browser's tools and `curl -i` show; `start` is ours."""
        return {"server-timing": ", ".join(self._entries())}

    def _entries(self) -> Iterator[str]:
        for name, _, began, ended, _ in self._spans:
            if TOKEN.fullmatch(name):
                start = milliseconds(began - self._began)
                yield f"{name};dur={milliseconds(ended - began)};start={start}"
        yield f"total;dur={milliseconds(self._ended - self._began)}"


def milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
