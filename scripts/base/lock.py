"""Commands that change things run one at a time, and the keeper does not interfere meanwhile.
Stdlib only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.base.errors import UserError
from scripts.base.files import is_shared
from scripts.base.paths import ROOT
from scripts.base.reader import may_read

OF_CHANGES = ROOT / "build" / "lock"
# A lock of its own: to revoke a key is not to wait for a build.
OF_KEYS = ROOT / "build" / "keys.lock"
# Of two commands that add a pipeline of one name, each would remove what the other one wrote.
OF_ADDITIONS = ROOT / "build" / "additions.lock"
HANDS_OFF = ROOT / "build" / "key" / "hands-off"

LOOK_S = 0.2
LONGEST_S = 1800  # the longest commands but one, make tune
KEEPER_S = 60  # that a command waits for the keeper: one that is stopped must not block it

# By thread and path. Nobody waits for itself: `make add-model` may have to start a server, of FROM=
# in .env, which is an addition, too.
_held = set[tuple[int, Path]]()


def one_at_a_time(path: Path = OF_CHANGES) -> contextlib.AbstractContextManager[None]:
    if (threading.get_ident(), path) in _held:
        return contextlib.nullcontext()

    def waits(holder: str) -> None:
        from scripts.base import console  # which takes along what is not installed at first

        console.note(f"waiting for another command to finish ({holder})")

    return hold_lock(path, waits)


@contextlib.contextmanager
def hold_lock(
    path: Path, waits: Callable[[str], object], longest_s: float = LONGEST_S
) -> Iterator[None]:
    """`waits` is told who holds it, if somebody does. Who waits does not wait for ever."""
    descriptor = os.open(private(path), os.O_RDWR | os.O_CLOEXEC)
    mine = threading.get_ident(), path
    try:
        if not _take(descriptor):
            holder = _note(descriptor)
            waits(holder)
            if not _take(descriptor, longest_s):
                raise UserError(
                    f"{holder or 'another command'} has held {path} for too long",
                    "let it finish, or end it, then run this again",
                )
        if not os.fstat(descriptor).st_nlink:  # who comes later locks another file
            raise UserError(f"{path} was removed meanwhile, as make clean does", "run this again")
        _leave_note(descriptor)
        _held.add(mine)
        yield
    finally:
        _held.discard(mine)
        os.close(descriptor)


def find_holder(path: Path) -> str:
    """Who holds it now; "" if nobody does, or if this user may not know."""
    try:
        descriptor = os.open(private(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return "" if _take(descriptor) else _note(descriptor) or "another command"
    finally:
        os.close(descriptor)


def private(path: Path, for_containers: bool = False) -> Path:
    """Created if missing, and only for its owner, the group that shares the checkout, or that of
    containers: all who can open a file can lock it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.touch(0o600)
        for_group = for_containers and may_read(path)
        path.chmod(0o660 if is_shared() else 0o640 if for_group else 0o600)
    except PermissionError:
        if not path.exists():
            raise
        # It is a colleague's, who has seen to it.
    return path


def _take(descriptor: int, seconds: float = 0, how: int = fcntl.LOCK_EX) -> bool:
    """Whether that could be done, at the latest after so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_S)


def _leave_note(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    with contextlib.suppress(OSError):  # on a full disk, which prune and down must work on too
        os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)


def _note(descriptor: int) -> str:
    return os.pread(descriptor, 100, 0).decode(errors="replace").strip()


def hands_off_file() -> Path:
    """Tells the keeper to wait while it is locked; the server's container mounts its folder, whose
    init gives it the group."""
    return private(HANDS_OFF, for_containers=True)


@contextlib.contextmanager
def hands_off(path: Path = HANDS_OFF) -> Iterator[None]:
    """While this command changes what is loaded, and others perhaps, the keeper restores nothing
    (bundle_keeper.hands)."""
    descriptor = os.open(private(path, for_containers=True), os.O_RDWR | os.O_CLOEXEC)
    try:
        _take(descriptor, KEEPER_S, fcntl.LOCK_SH)
        _leave_note(descriptor)
        yield
    finally:
        os.close(descriptor)
