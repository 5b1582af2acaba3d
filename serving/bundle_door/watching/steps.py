"""What the Python steps tell of each execution (bundle_serving.step_reports), as it arrives."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

# One report, of a large batch with many remarks, is a few kilobytes.
LONGEST_LINE = 256 << 10


class Report(msgspec.Struct):
    model: str
    version: str
    requests: int
    rows: int
    failed: int
    began: int  # of the monotonic clock, which all processes share, in ns
    ended: int
    ids: list[str] = []
    lost: int = 0
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
        self._numbers = itertools.count(1)

    @contextmanager
    def following(self) -> Iterator[Followed]:
        followed = Followed(f"door.{self._process}-{next(self._numbers):x}")
        self._followed[followed.id] = followed
        try:
            yield followed
        finally:
            del self._followed[followed.id]

    async def serve(self, socket: Path) -> asyncio.Server:
        socket.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(lambda: Reading(self.take, Report), str(socket))

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
