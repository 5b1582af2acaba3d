"""Two commands that change things take turns, and the server's keeper keeps out meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from bundle_serving import hands
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
            console.note(f"waiting for another make command to finish ({lock.read().strip()})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


def keepers_hands() -> Path:
    """The file whose lock holds them off; in the folder that the server's container sees."""
    path = ROOT / "build" / "key" / "hands-off"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with contextlib.suppress(PermissionError):  # another user's, whose commands these are then too
        path.chmod(0o644)
    return path


@contextlib.contextmanager
def hands_off() -> Iterator[None]:
    """What the server has loaded is this command's to change, and not its keeper's to restore."""
    with hands.off(keepers_hands()):
        yield
