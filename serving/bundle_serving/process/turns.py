"""Lets few large pictures be decoded at once in all of a server's processes, so that small ones
overtake them.

An execution of a step answers all of its requests together, and none is begun before it ends. So
each decodes what one request may ask for, and what is beyond that, or has to wait for its turn, is
put back: the door and Envoy send it again a little later.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from bundle_serving import work
from bundle_serving.process.cores import VARIABLE

# Of all that a request may ask for: what is larger waits for its turn, what is smaller for nothing.
LARGE, SMALL = 1 / 4, 1 / 16
# So often large ones make way for the others of their execution, which would wait for them.
MAKE_WAY = 8


class Later(Exception):
    """Not a fault of the request, which is to be sent again."""

    def __init__(self) -> None:
        super().__init__(work.LATER)


class Turns:
    """Of one process. Half of the cores are left to others."""

    def __init__(self, seen_in: Path | None = None, at_once: int | None = None) -> None:
        """`seen_in`: a file by which all processes know of each other, if there is one."""
        files = os.environ.get(VARIABLE)
        seen_in = seen_in or (Path(f"{files}large") if files else None)
        self._at_once = at_once or max(1, len(os.sched_getaffinity(0)) // 2)
        self._shared = _open(seen_in) if seen_in else None
        self._lock = threading.Lock()
        # Of the execution that is going on: its pictures, and what was taken for them.
        self._pending, self._taken, self._has_turn = 0, 0.0, False
        self._made_way = 0

    def enter(self, pictures: int) -> None:
        with self._lock:
            self._pending += pictures

    def leave(self) -> None:
        """A picture. The turn ends with the last one."""
        with self._lock:
            self._pending -= 1
            if self._pending == 0:
                self._taken = 0
                if self._has_turn and self._shared is not None:
                    fcntl.lockf(self._shared, fcntl.LOCK_UN)
                self._has_turn = False

    def take(self, share: float, alone: bool = True) -> None:
        """Of all that a request may ask for; whether the execution has no other request."""
        with self._lock:
            if share > SMALL and self._taken and self._taken + share > 1:
                raise Later
            if share > LARGE:
                if not alone and self._made_way < MAKE_WAY:
                    self._made_way += 1
                    raise Later
                self._made_way = 0
                if self._has_turn or not self._finds_turn():
                    raise Later
                self._has_turn = True
            self._taken += share

    def _finds_turn(self) -> bool:
        """A process that dies loses its turn."""
        if self._shared is None:
            return True
        for number in range(self._at_once):
            try:
                fcntl.lockf(self._shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
                return True
            except OSError:
                pass
        return False


def _open(path: Path) -> int | None:
    """Anybody may put a link there, which must not be followed."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:  # another user's: then each process has its own turns
        return None
