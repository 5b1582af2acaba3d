"""HTTP/1.1 on a Unix socket, for Envoy: one request after the other on each connection.

httptools reads it. What a server does beyond that, at a cost (docs/door.md), Envoy has done
already: it bounds headers and idle times, and passes on nothing that is malformed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from bundle_door.answers import Answer, Refused

# Of a body that nobody has read yet; more of it is left at the other end.
MOST_UNREAD = 256 << 10
# No connection of Envoy's is refused.
BACKLOG = 4096


class Body:
    """Of a request, as it arrives."""

    def __init__(self, transport: asyncio.ReadTransport) -> None:
        self._transport = transport
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._complete = False
        self._more: asyncio.Future[None] | None = None
        self._refused: Refused | None = None

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        if not (self._pieces or self._complete or self._refused):
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        if self._refused:
            try:
                raise self._refused
            finally:
                self._refused = None  # else they refer to each other
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        if self._unread > MOST_UNREAD >= self._unread - len(piece):
            self._transport.resume_reading()
        self._unread -= len(piece)
        return piece

    def feed(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > MOST_UNREAD:
            self._transport.pause_reading()
        self._tell()

    def end(self) -> None:
        self._complete = True
        self._tell()

    def refuse(self, refusal: Refused) -> None:
        """Whoever reads it gets this instead."""
        self._refused = refusal
        self._tell()

    def _tell(self) -> None:
        if self._more and not self._more.done():
            self._more.set_result(None)


class Incoming:
    """A request with its headers, whose names are in lower case."""

    def __init__(
        self, method: str, path: str, query: str, headers: Mapping[str, str], body: Body
    ) -> None:
        self.method, self.path, self.query = method, path, query
        self.headers = headers
        self.body = body


# Cancelled if the client hangs up.
Answering = Callable[[Incoming], Awaitable[Answer]]


class Connection(asyncio.Protocol):
    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self._parser = HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        # Of the request that is not answered yet.
        self._body: Body | None = None
        self._task: asyncio.Task[None] | None = None

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, fault: Exception | None) -> None:
        if self._task:
            self._task.cancel()
            # Else they refer to each other, and keep the body until they are found.
            self._task = self._body = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            refusal = Refused(400, "this is no request over HTTP/1.1").answer()
            self._transport.write(head(refusal) + refusal.body)
            self._transport.close()

    # What the parser finds

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", {}

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._task:
            raise ValueError("a request before the answer to the last one")
        path, _, query = self._url.partition(b"?")
        self._body = Body(self._transport)
        incoming = Incoming(
            self._parser.get_method().decode("ascii"),
            unquote(path.decode("ascii")),
            query.decode("latin-1"),
            self._headers,
            self._body,
        )
        answered = self._answer(incoming, self._parser.should_keep_alive())
        self._task = asyncio.get_running_loop().create_task(answered)

    def on_body(self, piece: bytes) -> None:
        if self._body:
            self._body.feed(piece)

    def on_message_complete(self) -> None:
        if self._body:
            self._body.end()

    async def _answer(self, incoming: Incoming, keep: bool) -> None:
        answer = await self._answering(incoming)
        self._task = self._body = None
        body = b"" if incoming.method == "HEAD" else answer.body
        self._transport.writelines([head(answer), body])
        # What is left of a body that was refused before its end.
        self._transport.resume_reading()
        if not keep:
            self._transport.close()


def head(answer: Answer) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    # "Not modified" has the length of what it stands for, or none.
    length = "" if answer.status == 304 else f"content-length: {len(answer.body)}\r\n"
    return f"HTTP/1.1 {answer.status} \r\n{fields}{length}\r\n".encode("latin-1")


@asynccontextmanager
async def server(answering: Answering, socket: Path) -> AsyncIterator[None]:
    socket.unlink(missing_ok=True)
    made = await asyncio.get_running_loop().create_unix_server(
        lambda: Connection(answering), str(socket), backlog=BACKLOG
    )
    try:
        yield
    finally:
        made.close()
