"""Connections that come while nobody listens are answered by who listens next."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bundle_keeper import waiting_room
from bundle_keeper.waiting_room import WaitingRoom
from bundle_serving.process import sockets
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


ADDRESSES = pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])


@asynccontextmanager
async def door(address: str, port: int, folder: Path) -> AsyncIterator[None]:
    """Which says that it listens, as Envoy does."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        counts = {waiting_room.STARTED: 1, waiting_room.STOPPED: 0}
        said = "".join(f"listener_manager.{name}: {count}\n" for name, count in counts.items())
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{said}".encode())
        writer.close()

    admin = folder / sockets.ENVOY_ADMIN
    async with (
        await asyncio.start_server(repeat, address, port, reuse_port=True),
        await asyncio.start_unix_server(say, admin),
    ):
        yield
        admin.unlink()


async def wait_for_end(room: WaitingRoom) -> None:
    while room.leading:
        await asyncio.sleep(0.05)


@ADDRESSES
def test_who_waits_is_led_to_the_next_one(address: str, tmp_path: Path) -> None:
    async def run() -> list[bytes]:
        (port,) = free_ports(1)
        room = WaitingRoom(address, [0, port], tmp_path)
        await room.hold()
        waiting = [await asyncio.open_connection(address, port) for _ in range(20)]
        large = b"x" * 1_000_000
        asked = [asyncio.create_task(ask(streams, large)) for streams in waiting]
        async with door(address, port, tmp_path):
            await room.look()
            assert await ask(await asyncio.open_connection(address, port), b"x") == b"again: x"
            answers = await asyncio.gather(*asked)
        room.close()
        assert {*answers} == {b"again: " + large}
        return answers

    assert len(asyncio.run(run())) == 20


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_it_is_open_behind_the_door_all_the_time(address: str, tmp_path: Path) -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom(address, [port], tmp_path)
        waiting: list[asyncio.Task[bytes]] = []
        for _ in range(3):
            async with door(address, port, tmp_path):
                await room.look()
                assert {*await asyncio.gather(*waiting)} <= {b"again: x"}
                for _ in range(20):
                    streams = await asyncio.open_connection("127.0.0.1", port)
                    assert await ask(streams, b"x") == b"again: x"
            for _ in range(20):
                streams = await asyncio.open_connection("127.0.0.1", port)
                waiting.append(asyncio.create_task(ask(streams, b"x")))
            await room.hold()
        room.close()
        await wait_for_end(room)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for each in waiting:
            each.cancel()

    asyncio.run(run())


DEAF = """
import socket, sys, time
address, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
for _ in range(2):
    listening = socket.create_server((address, port), family=family, reuse_port=True)
    listening.setblocking(False)
    globals()[f"kept_{_}"] = listening
print("listens", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_was_not_accepted_yet_is_led_on(address: str, tmp_path: Path) -> None:
    """By a door that ends, with two threads."""

    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom(address, [port], tmp_path)
        command = [sys.executable, "-c", DEAF, address, str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as deaf:
            assert deaf.stdout and deaf.stdout.readline()
            room.keep(deaf.pid)
            waiting = [await asyncio.open_connection(address, port) for _ in range(20)]
            deaf.kill()
        if not room._copies:
            pytest.skip("no process may take another's sockets here")
        await room.hold()
        waiting += [await asyncio.open_connection(address, port) for _ in range(20)]
        asked = [asyncio.create_task(ask(streams, b"x")) for streams in waiting]
        async with door(address, port, tmp_path):
            # Whatever is left of the old one, nobody new comes to it.
            for _ in range(20):
                streams = await asyncio.open_connection(address, port)
                assert await asyncio.wait_for(ask(streams, b"x"), 60) == b"again: x"
            await room.look()
            assert {*await asyncio.gather(*asked)} == {b"again: x"}
            await room.look()
            assert not room._left
            await wait_for_end(room)
        room.close()

    asyncio.run(run())


@ADDRESSES
def test_a_port_that_another_server_has_is_left_to_it(address: str, tmp_path: Path) -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom(address, [port], tmp_path)
        async with door(address, port, tmp_path):
            await room.hold()
            for _ in range(20):
                streams = await asyncio.open_connection(address, port)
                assert await asyncio.wait_for(ask(streams, b"x"), 60) == b"again: x"
        room.close()

    asyncio.run(run())


def test_who_has_left_is_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom("127.0.0.1", [port], tmp_path)
        await room.hold()
        socket.create_connection(("127.0.0.1", port)).close()
        async with door("127.0.0.1", port, tmp_path):
            await room.look()
            await wait_for_end(room)
        room.close()

    asyncio.run(run())


def test_who_waits_is_not_kept_for_a_door_that_never_comes(tmp_path: Path) -> None:
    """Once the keeper ends."""

    async def run() -> None:
        (port,) = free_ports(1)
        room = WaitingRoom("127.0.0.1", [port], tmp_path)
        await room.hold()
        waiting = await asyncio.open_connection("127.0.0.1", port)
        room.close()
        with pytest.raises(OSError, match=r"reset|not connected"):  # seen when it asks, or before
            await ask(waiting, b"x")

    asyncio.run(run())


def test_who_leads_on_for_a_keeper_of_an_earlier_release_is_known(tmp_path: Path) -> None:
    """Its module had another name."""

    async def run(program: int) -> None:
        room = WaitingRoom("127.0.0.1", free_ports(1), tmp_path)
        room.resume()
        assert room.leading == [program]
        room.close()
        await asyncio.wait_for(wait_for_end(room), 60)

    command = [sys.executable, "-c", "import time; time.sleep(600)", str(tmp_path), "127.0.0.1"]
    with subprocess.Popen(command) as program:
        try:
            asyncio.run(run(program.pid))
        finally:
            program.kill()
