"""How much each process of the HTTP service has in hand: limits are of all of them together."""

from __future__ import annotations

from pathlib import Path

from bundle_door.settings import MOST_PROCESSES
from bundle_serving.process.cores import map_shared

ITEM = 8


class Counts:
    """In memory that the processes share: each writes its own row, and reads the sum of all."""

    REQUESTS, BYTES, ARRIVING, WAITING = WHICH = range(4)

    def __init__(self, processes: int = 1, number: int = 0, file: Path | None = None) -> None:
        row = ITEM * len(self.WHICH)
        # However many there are, else it would have to shrink under those that use it.
        memory = map_shared(file, row * MOST_PROCESSES) if file else bytearray(row)
        rows = memoryview(memory).cast("q")[: len(self.WHICH) * processes]
        self._all = [rows[which :: len(self.WHICH)] for which in self.WHICH]
        self._number = number
        for which in self.WHICH:  # what an earlier process had in hand is gone with it
            self.set_own(which, 0)

    def set_own(self, which: int, count: int) -> None:
        self._all[which][self._number] = count

    def add(self, which: int, count: int) -> None:
        self._all[which][self._number] += count

    def own(self, which: int) -> int:
        return self._all[which][self._number]

    def sum_up(self, which: int) -> int:
        return sum(self._all[which])
