"""Clients that watch frames."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from bundle_client import AsyncClient, Client, Watched
from scripts.artefacts.drawn.drawings import many
from tests.project import Project

PICTURES = [pixels.transpose(1, 2, 0) for pixels in many(12, seed=5)[0]]


def client(project: Project) -> Client:
    return Client(project.grpc, protocol="grpc")


@contextmanager
def watched(project: Project, asynchronous: bool = False) -> Iterator[list[Watched]]:
    """What a stream was told so far, of which no frame fails until the block ends."""
    stop, found, faults = threading.Event(), [], []

    def frames() -> Iterator[NDArray[np.uint8]]:
        while not stop.wait(0.2):
            yield PICTURES[0]

    async def watch_asynchronously() -> None:
        async with AsyncClient(project.grpc, protocol="grpc") as asked:
            async for each in asked.watch(frames()):
                found.append(each)

    def watch() -> None:
        try:
            if asynchronous:
                asyncio.run(watch_asynchronously())
                return
            with client(project) as asked:
                for each in asked.watch(frames()):
                    found.append(each)
        except Exception as fault:
            faults.append(fault)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        stop.set()
        watching.join()
    assert not faults
    assert [each.number for each in found] == [*range(1, len(found) + 1)]


def begun(found: Sequence[Watched]) -> int:
    """How often the server has begun to smooth."""
    return sum(each.frames == 1 for each in found)
