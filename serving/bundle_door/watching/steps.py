"""What the Python steps tell of each execution (bundle_serving.step_reports), as it arrives; and by
that, where the time of a request went."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from bundle_door.requests import Note, Request

# One report, of a large batch with many remarks, is a few kilobytes; what a process of the door has
# kept for another one (Told), up to a megabyte.
LONGEST_LINE = 2 << 20
TOKEN = re.compile(r"[\w.-]+", re.ASCII)
# A request's parameter: 1, and the answer has the times of its steps.
TIMINGS = "timings"


class Report(msgspec.Struct):
    model: str
    version: str
    requests: int
    rows: int
    failed: int
    began: int  # of the monotonic clock, which all processes share, in ns
    ended: int
    ids: list[str] = []
    lost: int = 0  # since the one before
    # The identity of the network that answered, if it was one.
    network: str = ""
    # The traceparent of each request whose trace is wanted.
    traces: list[str] = []
    # Of the rows, those that were asked for among known answers, and were there or not.
    hits: int = 0
    misses: int = 0
    # size, width, height, decoded share of the width, share of what a request may ask for
    pictures: list[tuple[int, int, int, float, float]] = []
    # class, probability
    answers: list[tuple[int, float]] = []


@dataclass
class Followed:
    """One request, and what the steps have reported of it."""

    id: str
    reports: list[Report] = field(default_factory=list)


class Steps:
    """The receiving end: all reports go to `on_report`, those of followed requests to these too."""

    def __init__(self, on_report: Callable[[Report], None], process: int = 0) -> None:
        """`process`: the door's, by whose number the steps know where to send a report."""
        self._on_report = on_report
        self._process = process
        self._followed: dict[str, Followed] = {}

    @contextmanager
    def following(self) -> Iterator[Followed]:
        # Which no client can guess: what it sends under another's id would be told of the other.
        followed = Followed(f"door.{self._process}-{secrets.token_hex(8)}")
        self._followed[followed.id] = followed
        try:
            yield followed
        finally:
            del self._followed[followed.id]

    def take(self, report: Report) -> None:
        for each in report.ids:
            if followed := self._followed.get(each):
                followed.reports.append(report)
        self._on_report(report)


Line = TypeVar("Line", bound=msgspec.Struct)


class Reading(asyncio.Protocol, Generic[Line]):
    """What one process tells, a line each."""

    def __init__(self, take: Callable[[Line], None], kind: type[Line]) -> None:
        self._take = take
        self._decoder = msgspec.json.Decoder(kind)
        self._begun = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            with suppress(msgspec.DecodeError):
                self._take(self._decoder.decode(line))
        if len(self._begun) > LONGEST_LINE:
            self._transport.close()  # and the process connects again


async def listen(socket: Path, take: Callable[[Line], None], kind: type[Line]) -> asyncio.Server:
    socket.unlink(missing_ok=True)
    loop = asyncio.get_running_loop()
    return await loop.create_unix_server(lambda: Reading(take, kind), str(socket))


async def read_reports() -> None:
    """The steps have sent them before Triton had its answer: they are only to be read."""
    await asyncio.sleep(0)


async def read_timeline(request: Request, followed: Followed) -> "Timeline":
    """Of a request that Triton has answered; its log line has the times, too."""
    await read_reports()
    timeline = Timeline(request, followed.reports)
    timeline.note(request.note)
    return timeline


class Timeline:
    """Where one request's time went, as the door and the steps have measured it; nothing is
    guessed. What lies between two spans was spent waiting and on the way."""

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
        entries = [
            f"{name};dur={milliseconds(ended - began)};start={milliseconds(began - self._began)}"
            for name, _, began, ended, _ in self._spans
            if TOKEN.fullmatch(name)
        ]
        total = f"total;dur={milliseconds(self._ended - self._began)}"
        return {"server-timing": ", ".join([*entries, total])}


def milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 3)
