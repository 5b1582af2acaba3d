"""Commands that change things run one at a time, and the keeper does not interfere meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from scripts.base import console
from scripts.base.paths import ROOT
from scripts.base.shared import is_shared

OF_CHANGES = ROOT / "build" / "lock"


@contextlib.contextmanager
def one_at_a_time(path: Path = OF_CHANGES) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            console.note(f"waiting for another make command to finish ({lock.read().strip()})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.truncate(0)
        with contextlib.suppress(OSError):  # on a full disk, which prune and down must work on too
            os.write(lock.fileno(), f"process {os.getpid()}".encode())
        yield


def hands_off_file() -> Path:
    """Tells the keeper to wait while it is locked; the server's container mounts its folder."""
    path = ROOT / "build" / "key" / "hands-off"
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(PermissionError):  # it belongs to another user, and so does the server
        path.touch()
        path.chmod(0o664 if is_shared() else 0o644)
    return path


@contextlib.contextmanager
def hands_off() -> Iterator[None]:
    """While this command changes what is loaded, the keeper restores nothing."""
    from bundle_serving import hands  # which takes asyncio along

    with hands.off(hands_off_file()):
        yield
