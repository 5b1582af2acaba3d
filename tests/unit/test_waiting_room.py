"""Connections that come while nobody listens are answered by who listens next."""

from __future__ import annotations

import asyncio
import socket

from bundle_keeper.waiting_room import WaitingRoom
from tests.project import free_ports

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What comes, once it is complete."""
    writer.write(b"again: " + await reader.read())
    writer.close()


async def ask(streams: Streams, said: bytes) -> bytes:
    reader, writer = streams
    writer.write(said)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def test_who_waits_is_led_to_the_next_one() -> None:
    async def run() -> list[bytes]:
        (port,) = free_ports(1)
        room = WaitingRoom("127.0.0.1", [0, port])
        await room.open()
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        large = b"x" * 1_000_000
        asked = [asyncio.create_task(ask(streams, large)) for streams in waiting]
        async with await asyncio.start_server(repeat, "127.0.0.1", port, reuse_port=True):
            room.close()
            assert await ask(await asyncio.open_connection("127.0.0.1", port), b"x") == b"again: x"
            answers = await asyncio.gather(*asked)
        assert {*answers} == {b"again: " + large}
        return answers

    assert len(asyncio.run(run())) == 20


def test_a_port_that_another_server_has_is_left_to_it() -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom("127.0.0.1", [port])
        async with await asyncio.start_server(repeat, "127.0.0.1", port, reuse_port=True):
            await room.open()
            for _ in range(20):
                streams = await asyncio.open_connection("127.0.0.1", port)
                assert await asyncio.wait_for(ask(streams, b"x"), 60) == b"again: x"

    asyncio.run(run())


def test_who_has_left_is_forgotten() -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom("127.0.0.1", [port])
        await room.open()
        socket.create_connection(("127.0.0.1", port)).close()
        room.close()  # and nobody listens
        while room._leading:
            await asyncio.wait(room._leading)

    asyncio.run(run())
