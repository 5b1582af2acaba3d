"""Commands that change things run one at a time, and the keeper does not interfere meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from scripts.base import console
from scripts.base.locked import hold_lock, private
from scripts.base.paths import ROOT

OF_CHANGES = ROOT / "build" / "lock"
# A lock of its own: to revoke a key is not to wait for a build.
OF_KEYS = ROOT / "build" / "keys.lock"
HANDS_OFF = ROOT / "build" / "key" / "hands-off"
# The server's group in a container (scripts/stacks/admin_key.py).
READER = 65532


@contextlib.contextmanager
def one_at_a_time(path: Path = OF_CHANGES) -> Iterator[None]:
    def waits(holder: str) -> None:
        console.note(f"waiting for another command to finish ({holder})")

    with hold_lock(path, waits):
        yield


def hands_off_file() -> Path:
    """Tells the keeper to wait while it is locked; the server's container mounts its folder, whose
    init gives it the group."""
    return private(HANDS_OFF, READER)


def container_can_read() -> bool:
    return HANDS_OFF.exists() and HANDS_OFF.stat().st_gid == READER


@contextlib.contextmanager
def hands_off() -> Iterator[None]:
    """While this command changes what is loaded, the keeper restores nothing."""
    from bundle_serving.process import hands  # which takes asyncio along

    with hands.hold_for_command(hands_off_file()):
        yield
