"""How a server that is busy, or gone, is asked again: a few times, later each time, and not by all
at once."""

import random
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from ..errors import ServerBusy, ServerUnreachable

T = TypeVar("T")

# After the first time; all waiting together takes 5 to 15 s.
MOST_AGAIN = 4
FIRST_S = 0.67


def pauses(rng: Callable[[float, float], float] = random.uniform) -> Iterator[float]:
    for number in range(MOST_AGAIN):
        yield FIRST_S * 2**number * rng(0.5, 1.5)


def patiently(ask: Callable[[], T], met: Callable[[], bool]) -> T:
    for pause in pauses():
        try:
            return ask()
        except (ServerBusy, ServerUnreachable) as fault:
            time.sleep(max(pause, _wanted_pause(fault, met())))
    return ask()


async def patiently_async(ask: Callable[[], Awaitable[T]], met: Callable[[], bool]) -> T:
    import asyncio  # which a synchronous program can do without

    for pause in pauses():
        try:
            return await ask()
        except (ServerBusy, ServerUnreachable) as fault:
            await asyncio.sleep(max(pause, _wanted_pause(fault, met())))
    return await ask()


def _wanted_pause(fault: ServerBusy | ServerUnreachable, met: bool) -> float:
    """A server that has answered before is missed only for a while, or another one takes its place
    behind the same address; of one that was never met, the address is wrong."""
    if isinstance(fault, ServerBusy):
        return fault.seconds
    if not met:
        raise fault
    return 0.0
