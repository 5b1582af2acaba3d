"""Who may change what is loaded: commands, or the keeper while no command is running.

A file lock, because it ends with the command that holds it, and because a container sees it through
a read-only mount. (Not if Docker runs in a virtual machine: there a command and the keeper may
interfere, and the later load counts.)
"""

from __future__ import annotations

import asyncio
import fcntl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

LOOK_S = 0.2
LONGEST_S = 60  # that a command waits for the keeper: a stopped keeper must not block it


class Hands:
    """The keeper's."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Once no command is at work."""
        while True:
            with self.on_if_free() as free:
                if free:
                    yield
                    return
            await asyncio.sleep(LOOK_S)

    @contextmanager
    def on_if_free(self) -> Iterator[bool]:
        """Whether no command is at work, and none begins before the block ends."""
        if self._file is None or not self._file.exists():
            yield True
            return
        with self._file.open() as lock:
            yield _taken(lock, fcntl.LOCK_EX)


@contextmanager
def off(file: Path) -> Iterator[None]:
    """Keeps the keeper from interfering during a command; several commands may do so at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        deadline = time.monotonic() + LONGEST_S
        while not _taken(lock, fcntl.LOCK_SH) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        yield


def _taken(lock: IO[str], how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
