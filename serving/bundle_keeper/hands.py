"""When the keeper may change what is loaded: while no command does (scripts/base/lock.py); and what
did not help before, after pauses that increase.

Commands hold a file lock, because it ends with them, and because a container sees it through a
read-only mount. (Not if Docker runs in a virtual machine: there a command and the keeper may
interfere, and the later load counts.)
"""

import asyncio
import fcntl
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

from bundle_serving.process.server_log import log

LOOK_S = 0.2
# That the keeper waits for commands: one that is stopped must not block it.
COMMANDS_S = 900
WITHIN_S = 300
WITHOUT_PAUSE = 3
# Requests wait for what is restored, a minute at most, of which a busy machine takes half.
FIRST_S, LONGEST_S = 1, 15


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
                    assert self._file
                    who = self._file.read_text(errors="replace")[:100].strip() or "a command"
                    log("keeper", f"goes on, since {who} has held {self._file} too long")
                if free or late:
                    yield
                    return
            await asyncio.sleep(LOOK_S)

    @contextmanager
    def on_if_free(self) -> Iterator[bool]:
        """Whether no command is at work, and none begins before the block ends."""
        free = True
        with ExitStack() as stack:
            if self._file:
                try:
                    lock = stack.enter_context(_open(self._file))
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    free = False
                except OSError:
                    pass  # there is none, or none that commands and keeper share
            yield free


def _open(file: Path) -> TextIO:
    try:
        return file.open("r+")  # as NFS wants it for such a lock
    except OSError:
        return file.open()  # from a container


class Pauses:
    def __init__(self) -> None:
        self._done: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=16))

    async def wait_before(self, what: str) -> None:
        now = time.monotonic()
        recent = sum(at > now - WITHIN_S for at in self._done[what])
        self._done[what].append(now)
        if recent >= WITHOUT_PAUSE:
            await asyncio.sleep(min(FIRST_S * 2 ** (recent - WITHOUT_PAUSE), LONGEST_S))
