"""Programs that the keeper starts, or finds running where a keeper before it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from bundle_serving.processes import Process, family


class Child:
    """In a group of its own, which ends with it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._ended = asyncio.Event()
        pidfd = os.pidfd_open(pid)
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            with suppress(ChildProcessError):  # another's child, who waits for it
                os.waitpid(pid, 0)
            self._ended.set()

        loop.add_reader(pidfd, ended)

    @classmethod
    def started(cls, module: str, *options: str) -> Child:
        command = [sys.executable, "-m", module, *options]
        return cls(os.posix_spawn(command[0], command, os.environ, setsid=True))

    @classmethod
    def found(cls, is_it: Callable[[Process], bool]) -> Child | None:
        """Whoever started this process has got it."""
        there = (each for each in family(os.getppid()) if each.pid != os.getpid())
        return next((cls(each.pid) for each in there if is_it(each)), None)

    @property
    def runs(self) -> bool:
        return not self._ended.is_set()

    async def wait(self) -> None:
        await self._ended.wait()

    async def end(self, grace: float) -> None:
        """With all that it started, once the time for what is in flight is over."""
        if grace and self.runs:
            os.kill(self.pid, signal.SIGTERM)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.wait(), grace)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
