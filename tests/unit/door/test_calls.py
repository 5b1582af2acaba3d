"""Calls over the door's own HTTP/2, to a server of gRPC's."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from bundle_door.wire.calls import CallFailed, Calls
from bundle_door.wire.http2 import MOST_STREAMS

ECHO, SLOW, BROKEN = "/test/Echo", "/test/Slow", "/test/Broken"
HUGE = "/test/Huge"
LONG = "why not? 100% é " * 2000


class Server:
    """Echoes; or waits, and says when it was cancelled; or fails, with a long message."""

    def __init__(self) -> None:
        self.asked, self.cancelled, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.metadata: dict[str, str] = {}

    async def echo(self, message: bytes, context: Any) -> bytes:
        self.metadata = dict(context.invocation_metadata())
        return message

    async def slow(self, message: bytes, context: Any) -> bytes:
        self.asked.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return message

    async def broken(self, message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, LONG)
        return b""

    async def huge(self, message: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, len(message) * "x")
        return b""

    @asynccontextmanager
    async def at(self, socket: Path) -> AsyncIterator[grpc.aio.Server]:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(getattr(self, name.lower()))
            for name in ("Echo", "Slow", "Broken", "Huge")
        }
        unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_metadata_size", 1 << 20)]
        made = grpc.aio.server(options=unbounded)
        made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
        made.add_insecure_port(f"unix:{socket}")
        await made.start()
        try:
            yield made
        finally:
            await made.stop(grace=0)


def served(check: Callable[[Server, Calls, Path], Awaitable[None]], folder: Path) -> None:
    async def run() -> None:
        server, socket = Server(), folder / "socket"
        calls = Calls(socket)
        async with asyncio.timeout(60), server.at(socket):
            await check(server, calls, socket)
        calls.close()

    asyncio.run(run())


def test_messages_of_all_sizes(tmp_path: Path) -> None:
    """Also those that take many frames, and more than the other end takes at once; all together."""

    async def check(server: Server, calls: Calls, socket: Path) -> None:
        sizes = [0, 1, 16_383, 16_384, 70_000, 20_000_000, 1, 3_000_000]
        sent = [bytes([number]) * size for number, size in enumerate(sizes)]
        came = await asyncio.gather(
            *(calls.call(ECHO, [memoryview(each), b"!"], 60) for each in sent)
        )
        assert [len(each) for each in came] == [len(each) + 1 for each in sent]
        assert came == [each + b"!" for each in sent]

    served(check, tmp_path)


def test_metadata_and_the_deadline_arrive(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        await calls.call(ECHO, [b"x"], 60, (("traceparent", "00-" + "a" * 200),))
        assert server.metadata["traceparent"] == "00-" + "a" * 200
        with pytest.raises(CallFailed) as failed:
            await calls.call(SLOW, [b"x"], 0.05)
        assert failed.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
        await server.cancelled.wait()

    served(check, tmp_path)


def test_a_body_that_was_not_answered_is_not_kept(tmp_path: Path) -> None:
    """Not until Python looks for what refers to itself."""

    async def check(server: Server, calls: Calls, socket: Path) -> None:
        body = memoryview(bytes(1000))
        kept, asked = weakref.ref(body), [body]
        del body
        with suppress(CallFailed):
            await calls.call(SLOW, [asked.pop()], 0.05)
        await asyncio.sleep(0)  # for the event loop, which woke this up
        assert kept() is None

    gc.disable()
    try:
        served(check, tmp_path)
    finally:
        gc.enable()


def test_an_error_has_its_status_and_all_of_its_message(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        for body in (b"x", bytes(30_000_000)):  # refused before all of it was there
            with pytest.raises(CallFailed, match="why not") as failed:
                await calls.call(BROKEN, [body], 60)
            assert failed.value.code == grpc.StatusCode.INVALID_ARGUMENT
            assert str(failed.value) == LONG
        with pytest.raises(CallFailed) as failed:
            await calls.call("/test/Nothing", [b"x"], 60)
        assert failed.value.code == grpc.StatusCode.UNIMPLEMENTED
        assert await calls.call(ECHO, [b"x"], 60) == b"x"

    served(check, tmp_path)


@pytest.mark.parametrize("size", [66_000, 1_000_000])
def test_a_header_that_is_too_large_fails_its_own_call(tmp_path: Path, size: int) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        other = asyncio.create_task(calls.call(SLOW, [b"other"], 60))
        await server.asked.wait()
        for _ in range(3):
            with pytest.raises(CallFailed, match="cannot be read") as failed:
                await calls.call(HUGE, [bytes(size)], 60)
            assert failed.value.code == grpc.StatusCode.INTERNAL
        server.go_on.set()
        assert await other == b"other"

    served(check, tmp_path)


def test_what_is_cancelled_here_is_cancelled_there(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        call = asyncio.create_task(calls.call(SLOW, [b"x"], 60))
        await server.asked.wait()
        call.cancel()
        await server.cancelled.wait()
        assert await calls.call(ECHO, [b"x"], 60) == b"x"

    served(check, tmp_path)


def test_a_server_that_stops_answers_what_it_has_begun(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        again = tmp_path / "again"
        async with server.at(again) as stopped:
            calls = Calls(again)
            call = asyncio.create_task(calls.call(SLOW, [b"begun"], 60))
            await server.asked.wait()
            connection = await calls._connect()
            stopping = asyncio.create_task(stopped.stop(grace=60))
            # Until it has said that it takes no more. It is not asked for that: what reaches gRPC's
            # server in Python while it stops is accepted, and sometimes never answered.
            while connection.usable:
                await asyncio.sleep(0.01)
            server.go_on.set()
            assert await call == b"begun"
            await stopping

    served(check, tmp_path)


def test_a_connection_whose_numbers_are_used_up_is_replaced(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        connection = await calls._connect()
        connection._next = MOST_STREAMS - 2
        for number in range(4):
            message = b"%d" % number
            assert await calls.call(ECHO, [message], 10) == message
        assert await calls._connect() is not connection

    served(check, tmp_path)


def test_a_server_that_ends_is_found_again(tmp_path: Path) -> None:
    async def check(server: Server, calls: Calls, socket: Path) -> None:
        again = tmp_path / "again"
        calls = Calls(again)
        with pytest.raises(CallFailed, match="connect") as failed:
            await calls.call(ECHO, [b"x"], 60)
        async with server.at(again):
            call = asyncio.create_task(calls.call(SLOW, [b"x"], 60))
            await server.asked.wait()
        with pytest.raises(CallFailed) as failed:
            await call
        assert failed.value.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        async with server.at(again):
            assert await calls.call(ECHO, [b"x"], 60) == b"x"

    served(check, tmp_path)
