"""Work that begins when an answer has gone out, and that no request waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

MOST_WAITING, MOST_BYTES = 16, 32_000_000


class Behind:
    """So much of it waits at once, and so many bytes of requests."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], int] = {}

    def begin(self, work: Coroutine[object, object, None], size: int) -> bool:
        """Whether there was room."""
        if len(self._tasks) >= MOST_WAITING or sum(self._tasks.values()) + size > MOST_BYTES:
            work.close()
            return False
        task = asyncio.create_task(work)
        self._tasks[task] = size
        task.add_done_callback(self._tasks.pop)
        return True
