"""Far more requests at once than the server takes: over HTTP of 1 MB each, over gRPC small ones."""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from benchmark.torture import pictures
from benchmark.torture.requests import RAW, Hostile
from benchmark.torture.subject import PICTURE, Subject
from bundle_serving.protocol import kserve

OF_A_MEGABYTE = 0.6
DEADLINE_S = 60
CHANNELS = 8
# A connection that is closed without an answer is opened again, as clients do.
AGAIN_S = 0.5

REFUSED, UNANSWERED = 503, 0


def statuses(subject: Subject, count: int, progress: Callable[[str], None]) -> Counter[int]:
    """What that many get that are all sent at once."""
    return asyncio.run(_send_all(subject, count, progress))


async def _send_all(subject: Subject, count: int, progress: Callable[[str], None]) -> Counter[int]:
    seen: Counter[int] = Counter()

    async def count_answer(asked: Awaitable[int]) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                seen[await asked] += 1
        except TimeoutError:
            seen[UNANSWERED] += 1
        progress(f"{seen.total():,} of {count:,}")

    large = round(OF_A_MEGABYTE * count)
    request = Hostile(200, pictures.of_a_megabyte(), RAW, f"/v2/models/{subject.pipeline}/infer")
    wire = b"".join(request.pieces())
    channels = [grpc.aio.insecure_channel(subject.grpc, _own_connection()) for _ in range(CHANNELS)]
    stubs = [kserve.stub(channel) for channel in channels]
    small = subject.message(PICTURE)
    over_grpc = (_over_grpc(stubs[number % CHANNELS], small) for number in range(count - large))
    over_http = (_over_http(subject.place, wire) for _ in range(large))
    await asyncio.gather(*map(count_answer, (*over_grpc, *over_http)))
    for channel in channels:
        await channel.close()
    return seen


def _own_connection() -> list[tuple[str, int]]:
    return [("grpc.use_local_subchannel_pool", 1)]


async def _over_grpc(stub: Any, message: object) -> int:
    try:
        await stub.ModelInfer(message, timeout=DEADLINE_S)
    except grpc.aio.AioRpcError as fault:
        refusals = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
        return REFUSED if fault.code() in refusals else UNANSWERED
    return 200


async def _over_http(place: tuple[str, int], wire: bytes) -> int:
    while True:
        try:
            if status := await _one_connection(place, wire):
                return status
        except OSError:
            pass
        await asyncio.sleep(AGAIN_S * (1 + random.random()))


async def _one_connection(place: tuple[str, int], wire: bytes) -> int:
    """0 where it was closed without an answer."""
    loop = asyncio.get_running_loop()
    with socket.socket() as connection:
        connection.setblocking(False)
        await loop.sock_connect(connection, place)
        sending = asyncio.ensure_future(loop.sock_sendall(connection, wire))
        try:
            # It may be refused before all of it is sent.
            answer = await loop.sock_recv(connection, 4096)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return int(answer.split(maxsplit=2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
