"""Programs that the keeper starts, or finds running after an earlier keeper was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from bundle_keeper.afresh import orphans
from bundle_serving.process.processes import Process, family


class Child:
    """A process in its own group, which ends with it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = asyncio.Event()
        pidfd = os.pidfd_open(pid)
        loop = asyncio.get_running_loop()

        def note_end() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            with suppress(ChildProcessError):  # not our child: its parent waits for it
                os.waitpid(pid, 0)
            self._ended.set()

        loop.add_reader(pidfd, note_end)

    @classmethod
    def start(cls, module: str, *options: str, files: Iterable[int] = ()) -> Child:
        """With these files of ours, by the same numbers."""
        command = [sys.executable, "-m", module, *options]
        given = [(os.POSIX_SPAWN_DUP2, file, file) for file in files]
        return cls(os.posix_spawn(command[0], command, os.environ, file_actions=given, setsid=True))

    @classmethod
    def find_running(cls, is_it: Callable[[Process], bool]) -> Child | None:
        """A matching process that is running already, started by this one or not."""
        return next(cls.find_all_running(is_it), None)

    @classmethod
    def find_all_running(cls, is_it: Callable[[Process], bool]) -> Iterator[Child]:
        there = (each for each in [*family(os.getppid()), *orphans()] if each.pid != os.getpid())
        return (cls(each.pid) for each in there if is_it(each))

    @property
    def runs(self) -> bool:
        return not self._ended.is_set()

    async def wait(self) -> None:
        await self._ended.wait()

    async def end(self, grace: float) -> None:
        """Ends it and everything it started, after the grace period for requests in flight."""
        if grace and self.runs:
            os.kill(self.pid, signal.SIGTERM)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.wait(), grace)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
