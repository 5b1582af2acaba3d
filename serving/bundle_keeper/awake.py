"""Resumes processes that were stopped (SIGSTOP), and keeps their shared memory private."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from bundle_serving.process.keeper_notes import STOPPED, Notes
from bundle_serving.process.processes import IS_STOPPED, children_of, look_at, state_of

LOOK_S, FAMILY_S = 0.2, 1

# Triton gives up on a model's process that is silent for a second and reuses the request's memory.
# A process resumed later would write there and crash the whole server.
LONGEST_ASLEEP_S = 0.6


async def keep_awake(roots: Callable[[], Iterable[int]], shm_prefix: str, notes: Notes) -> NoReturn:
    known: list[int] = []
    looked_at_all = looked_at = 0.0
    while True:
        now = time.monotonic()
        if now > looked_at_all + FAMILY_S:
            known = [pid for root in roots() for pid in (root, *children_of(root))]
            _shut(shm_prefix)
            looked_at_all = now
        for pid in known:
            if state_of(pid) == IS_STOPPED and (seen := look_at(pid)):
                harmless = not seen.instance or now < looked_at + LONGEST_ASLEEP_S
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT if harmless else signal.SIGKILL)
                what = "woke it" if harmless else "ended it"
                notes.note_restored(STOPPED, f"{seen.name} was stopped: {what}")
        looked_at = now
        await asyncio.sleep(LOOK_S)


def _shut(shm_prefix: str) -> None:
    """Triton's shared memory, with the pictures in it, is readable by everyone on the machine."""
    for region in Path("/dev/shm").glob(f"{shm_prefix}*"):
        with suppress(FileNotFoundError):
            region.chmod(0o600)
