"""What the further processes of the HTTP service tell the first one, so that measures, drift and
rates are of all of them, and outlive each."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from bundle_door.watching.observed import HTTP, Series
from bundle_door.watching.shadows import Compared

# What is told together.
TELL_S = 0.05
# Kept while the first process is started again.
MOST_KEPT = 3000

What = TypeVar("What")


class Told(msgspec.Struct):
    # Series, status, seconds.
    requests: list[tuple[Series, int, float]] = []
    # Statuses.
    refusals: list[int] = []
    # What a client's request cost beyond the one that it was let in for.
    charges: list[tuple[str, int]] = []
    compared: list[Compared] = []
    # Outcomes.
    captures: list[str] = []


class Teller:
    """In a further process: takes the place of what the first one has."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._told = Told()

    def request(self, series: Series, status: int, seconds: float) -> None:
        self._add(self._told.requests, (series, status, seconds))

    def refusal(self, status: int, protocol: str = HTTP) -> None:
        self._add(self._told.refusals, status)

    def charge(self, client: str, more: int) -> None:
        self._add(self._told.charges, (client, more))

    def note_comparison(self, compared: Compared) -> None:
        self._add(self._told.compared, compared)

    def note_capture(self, outcome: str) -> None:
        self._add(self._told.captures, outcome)

    def _add(self, told: list[What], one: What) -> None:
        if len(told) < MOST_KEPT:
            told.append(one)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            with suppress(OSError):
                await self._tell()

    async def _tell(self) -> None:
        _, writer = await asyncio.open_unix_connection(self._socket)
        try:
            while not writer.is_closing():
                if self._told != Told():
                    told, self._told = self._told, Told()
                    writer.write(msgspec.json.encode(told) + b"\n")
                    await writer.drain()
                await asyncio.sleep(TELL_S)
        finally:
            writer.close()
