"""Programs that the keeper starts, or finds running after an earlier keeper was killed; and resumes
where they are stopped."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Self

from bundle_keeper.afresh import orphans
from bundle_serving.process.keeper_notes import STOPPED, Notes
from bundle_serving.process.processes import (
    IS_STOPPED,
    Process,
    children_of,
    family,
    look_at,
    state_of,
)

LOOK_S, FAMILY_S = 0.2, 1

# Triton gives up on a model's process that is silent for a second and reuses the request's memory.
# A process resumed later would write there and crash the whole server.
LONGEST_ASLEEP_S = 0.6


class Child:
    """A process in its own group, which ends with it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # The signal that ended it, if that is known; 0 if none did.
        self.ended_by = 0
        self._ended = asyncio.Event()
        pidfd = os.pidfd_open(pid)
        loop = asyncio.get_running_loop()

        def note_end() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            with suppress(ChildProcessError):  # not our child: its parent waits for it
                _, status = os.waitpid(pid, 0)
                self.ended_by = os.WTERMSIG(status)
            self._ended.set()

        loop.add_reader(pidfd, note_end)

    @classmethod
    def start(cls, module: str, *options: str, files: Iterable[int] = ()) -> Self:
        """With these files of ours, by the same numbers."""
        command = [sys.executable, "-m", module, *options]
        given = [(os.POSIX_SPAWN_DUP2, file, file) for file in files]
        return cls(os.posix_spawn(command[0], command, os.environ, file_actions=given, setsid=True))

    @classmethod
    def find_running(cls, is_it: Callable[[Process], bool]) -> Self | None:
        """A matching process that is running already, started by this one or not."""
        return next(cls.find_all_running(is_it), None)

    @classmethod
    def find_all_running(cls, is_it: Callable[[Process], bool]) -> Iterator[Self]:
        there = (each for each in [*family(os.getppid()), *orphans()] if each.pid != os.getpid())
        return (cls(each.pid) for each in there if is_it(each))

    @property
    def runs(self) -> bool:
        return not self._ended.is_set()

    @property
    def has_crashed(self) -> bool:
        """By itself: a program that takes too much memory is killed by SIGKILL."""
        return self.ended_by not in (0, signal.SIGKILL)

    async def wait(self) -> None:
        await self._ended.wait()

    async def end(self, grace: float) -> None:
        """Ends it and everything it started, after the grace period for requests in flight."""
        if grace and self.runs:
            with suppress(ProcessLookupError):  # another parent has waited for it just now
                os.kill(self.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), grace)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()


async def keep_awake(roots: Callable[[], Iterable[int]], shm_prefix: str, notes: Notes) -> NoReturn:
    """Resumes what is stopped (SIGSTOP), and keeps shared memory private."""
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
    """Triton's shared memory, with the pictures in it, is readable by everyone on the machine.
    Anybody may put a file or a link there."""
    for region in Path("/dev/shm").glob(f"{shm_prefix}*"):
        with suppress(OSError):
            file = os.open(region, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                os.fchmod(file, 0o600)
            finally:
                os.close(file)
