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
            console.note(f"waiting for another make that is at work ({lock.read().strip()})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        yield


def keepers_hands() -> Path:
    """The file whose lock holds them off; alone in a folder, which containers mount."""
    path = ROOT / "build" / "run" / "hands-off" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    path.touch()
    path.chmod(0o644)
    return path


@contextlib.contextmanager
def hands_off() -> Iterator[None]:
    """What the server has loaded is this command's to change, and not its keeper's to restore."""
    with hands.off(keepers_hands()):
        yield
