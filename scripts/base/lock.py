"""Two commands that change things take turns."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from scripts.base import console
from scripts.base.paths import ROOT


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    path = ROOT / "build" / "lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            console.note(f"waiting for another make that is at work ({lock.read().strip()})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield
