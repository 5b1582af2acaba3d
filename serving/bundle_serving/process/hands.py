"""Who may change what is loaded: commands, or the keeper while no command is running.

A file lock, because it ends with the command that holds it, and because a container sees it through
a read-only mount. (Not if Docker runs in a virtual machine: there a command and the keeper may
interfere, and the later load counts.)
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from bundle_serving.process.server_log import log

LOOK_S = 0.2
# That a command waits for the keeper, and the keeper for commands: one that is stopped must not
# block the other.
LONGEST_S, COMMANDS_S = 60, 900


class Hands:
    """The keeper's."""

    def __init__(self, file: Path | None, longest_s: float = COMMANDS_S) -> None:
        self._file, self._longest_s = file, longest_s

    @asynccontextmanager
    async def hold_for_keeper(self) -> AsyncIterator[None]:
        """Once no command is at work, or one has been for too long."""
        deadline = time.monotonic() + self._longest_s
        while True:
            with self.on_if_free() as free:
                late = not free and time.monotonic() > deadline
                if late:
                    log("keeper", f"goes on, since {self._holder()} has held {self._file} too long")
                if free or late:
                    yield
                    return
            await asyncio.sleep(LOOK_S)

    def _holder(self) -> str:
        assert self._file
        return self._file.read_text(errors="replace")[:100].strip() or "a command"

    @contextmanager
    def on_if_free(self) -> Iterator[bool]:
        """Whether no command is at work, and none begins before the block ends."""
        try:
            lock = self._file.open() if self._file else None
        except OSError:  # there is none, or none that commands and keeper share
            lock = None
        if lock is None:
            yield True
            return
        with lock:
            yield _try_lock(lock, fcntl.LOCK_EX)


@contextmanager
def hold_for_command(file: Path) -> Iterator[None]:
    """Keeps the keeper from interfering during a command; several commands may do so at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # For nobody else: whoever can open it can lock it.
    with open(file, "a", opener=partial(os.open, mode=0o600)) as lock:
        deadline = time.monotonic() + LONGEST_S
        while not _try_lock(lock, fcntl.LOCK_SH) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        lock.truncate(0)
        with suppress(OSError):  # a full disk
            print(f"process {os.getpid()}", file=lock, flush=True)
        yield


def _try_lock(lock: IO[str], how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
