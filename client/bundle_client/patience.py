"""How a busy server is asked again: a few times, later each time, and not by all at once."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from .errors import ServerBusy

T = TypeVar("T")

# After the first time; all waiting together takes 5 to 15 s.
MOST_AGAIN = 4
FIRST_S = 0.67


def pauses(rng: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
    for number in range(MOST_AGAIN):
        yield FIRST_S * 2**number * rng(0.5, 1.5)


def patiently(ask: Callable[[], T]) -> T:
    for pause in pauses():
        try:
            return ask()
        except ServerBusy as busy:
            time.sleep(max(pause, busy.seconds))
    return ask()


async def patiently_async(ask: Callable[[], Awaitable[T]]) -> T:
    import asyncio  # which a synchronous program can do without

    for pause in pauses():
        try:
            return await ask()
        except ServerBusy as busy:
            await asyncio.sleep(max(pause, busy.seconds))
    return await ask()
