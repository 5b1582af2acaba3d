"""The door's HTTP/1.1, of which Envoy is the only client."""

import asyncio
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bundle_door.answers import Answer, Refused
from bundle_door.wire import http1
from bundle_door.wire.http1 import Incoming

MEGABYTES = 8_000_000


class Service:
    """Tells what it was asked; or waits for what does not come; or refuses without a look."""

    def __init__(self) -> None:
        self.asked, self.cancelled = asyncio.Event(), asyncio.Event()

    async def __call__(self, incoming: Incoming) -> Answer:
        self.asked.set()
        if incoming.path == "/refuse":
            return Refused(413, "too large").answer()
        if incoming.path == "/wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        if incoming.path == "/impatient":
            refused = Refused(408, "too slow")
            asyncio.get_running_loop().call_later(0.01, incoming.body.refuse, refused)
        size = 0
        try:
            while piece := await incoming.body.read():
                size += len(piece)
        except Refused as refusal:
            return refusal.answer()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        told = (
            f"{incoming.method} {incoming.path} {incoming.query} {incoming.headers['x-one']} {size}"
        )
        return Answer(told.encode(), headers={"x-two": "2"})


def asked(check: Callable[[Reader, Writer, Service], Awaitable[None]], folder: Path) -> None:
    async def run() -> None:
        service, socket = Service(), folder / "http"
        async with asyncio.timeout(60), http1.server(service, socket):
            reader, writer = await asyncio.open_unix_connection(socket)
            await check(reader, writer, service)
            writer.close()

    asyncio.run(run())


def question(method: str, target: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/1.1", "X-One: 1", *fields, "", ""]).encode()


async def answer(reader: Reader, body: bool = True) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    return head, await reader.readexactly(length) if body else b""


def test_one_request_after_the_other(tmp_path: Path) -> None:
    async def check(reader: Reader, writer: Writer, service: Service) -> None:
        writer.write(question("GET", "/a%20b?c=d"))
        head, body = await answer(reader)
        assert head.startswith(b"HTTP/1.1 200 ") and b"\r\nx-two: 2\r\n" in head
        assert body == b"GET /a b c=d 1 0"
        writer.write(question("POST", "/p", "Content-Length: 4") + b"1")
        await writer.drain()
        writer.write(b"234")
        assert (await answer(reader))[1] == b"POST /p  1 4"
        chunks = b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"
        writer.write(question("POST", "/p", "Transfer-Encoding: chunked") + chunks)
        assert (await answer(reader))[1] == b"POST /p  1 3"
        writer.write(question("HEAD", "/h"))
        assert b"content-length: 12\r\n" in (await answer(reader, body=False))[0]
        writer.write(question("POST", "/p", f"Content-Length: {MEGABYTES}") + bytes(MEGABYTES))
        assert (await answer(reader))[1] == b"POST /p  1 %d" % MEGABYTES
        writer.write(question("GET", "/last", "Connection: close"))
        assert await answer(reader) and await reader.read() == b""

    asked(check, tmp_path)


def test_a_body_that_nobody_reads_is_left_out(tmp_path: Path) -> None:
    """While the request is answered no more is taken than a little, then all of it."""

    async def check(reader: Reader, writer: Writer, service: Service) -> None:
        writer.write(question("POST", "/refuse", f"Content-Length: {MEGABYTES}") + bytes(MEGABYTES))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 413 ")
        writer.write(question("GET", "/next"))
        assert (await answer(reader))[1] == b"GET /next  1 0"

        service.asked.clear()
        writer.write(question("POST", "/wait", f"Content-Length: {MEGABYTES}") + bytes(MEGABYTES))
        await service.asked.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > MEGABYTES // 2

    asked(check, tmp_path)


@pytest.mark.parametrize(
    "sent", [question("GET", "/wait"), question("POST", "/p", "Content-Length: 4") + b"1"],
    ids=["whole", "begun"],
)  # fmt: skip
def test_a_client_that_hangs_up_is_worked_for_no_more(sent: bytes, tmp_path: Path) -> None:
    async def check(reader: Reader, writer: Writer, service: Service) -> None:
        writer.write(sent)
        await service.asked.wait()
        writer.close()
        await service.cancelled.wait()

    asked(check, tmp_path)


def test_a_body_that_is_refused_is_awaited_no_longer(tmp_path: Path) -> None:
    async def check(reader: Reader, writer: Writer, service: Service) -> None:
        writer.write(question("POST", "/impatient", "Content-Length: 4") + b"1")
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 408 ")
        writer.write(b"234" + question("GET", "/next"))
        assert (await answer(reader))[1] == b"GET /next  1 0"

    asked(check, tmp_path)


def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    async def check(reader: Reader, writer: Writer, service: Service) -> None:
        writer.write(question("GET", "/a\xe9"))
        head, body = await answer(reader)
        assert head.startswith(b"HTTP/1.1 400 ") and b"Invalid" in body
        assert await reader.read() == b"" and not service.asked.is_set()

    asked(check, tmp_path)
