"""Increasing pauses between repeated attempts."""

import asyncio
import time
from collections import defaultdict, deque

WITHIN_S = 300
WITHOUT_PAUSE = 3
# Requests wait for what is restored, a minute at most, of which a busy machine takes half.
FIRST_S, LONGEST_S = 1, 15


class Pauses:
    def __init__(self) -> None:
        self._done: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=16))

    async def wait_before(self, what: str) -> None:
        now = time.monotonic()
        recent = sum(at > now - WITHIN_S for at in self._done[what])
        self._done[what].append(now)
        if recent >= WITHOUT_PAUSE:
            await asyncio.sleep(min(FIRST_S * 2 ** (recent - WITHOUT_PAUSE), LONGEST_S))
