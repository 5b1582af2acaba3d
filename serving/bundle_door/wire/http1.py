"""HTTP/1.1 on a Unix socket, for Envoy, as uvicorn reads and writes it; whose server, with signals,
logs and a clock of its own, is not needed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from bundle_door.answers import Answer, Refused

# No connection of Envoy's is refused, and none is ended: it does that.
BACKLOG = 4096
IDLE_S = 10 * 365 * 86400
# Of an answer: what is given to the transport at once, which copies what is not taken.
PIECE = 256 << 10
# Of its request, the task that answers it, and how the connection is ended.
TASK, HANG_UP = "task", "hang up"

Receive = Callable[[], Awaitable[Any]]


class Body:
    """Of a request, as it arrives."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = False
        self._reader: asyncio.Task[Any] | None = None
        self._refused: Refused | None = None

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        while not (self._complete or self._refused):
            self._reader = asyncio.current_task()
            try:
                message = await self._receive()
            except asyncio.CancelledError:
                if not (self._refused and self._reader):
                    raise
                self._reader.uncancel()
                break
            finally:
                self._reader = None
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            self._complete = not message["more_body"]
            if piece := message["body"]:
                return bytes(piece)
        if self._refused:
            try:
                raise self._refused
            finally:
                self._refused = None  # else they refer to each other
        return b""

    def refuse(self, refusal: Refused) -> None:
        """Whoever reads it gets this instead."""
        self._refused = refusal
        if self._reader:
            self._reader.cancel()


@dataclass(slots=True)
class Incoming:
    """A request with its headers, whose names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: Body
    hang_up: Callable[[], None]
    # What ends when the answer is sent.
    until_sent: ExitStack = field(default_factory=ExitStack)


# Cancelled if the client hangs up.
Answering = Callable[[Incoming], Awaitable[Answer]]


class Connection(HttpToolsProtocol):
    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[HANG_UP] = self.transport.abort

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        scope: Any = self.scope or {}
        if TASK in scope:
            scope[TASK].cancel()


def connections_of(answering: Answering) -> Callable[[], Connection]:
    async def respond(scope: Any, receive: Receive, send: Callable[[Any], Awaitable[None]]) -> None:
        incoming = Incoming(
            scope["method"],
            scope["path"],
            scope["query_string"].decode("latin-1"),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
            Body(receive),
            scope.pop(HANG_UP),
        )
        scope[TASK] = asyncio.current_task()
        try:
            answer = await answering(incoming)
        except asyncio.CancelledError:
            return  # nobody is there any more
        finally:
            del scope[TASK]  # else they refer to each other, and keep the body until found
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in answer.headers.items()
        ]
        # "Not modified" has the length of what it stands for, or none.
        if answer.status != 304:
            headers.append((b"content-length", b"%d" % len(answer.body)))
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        with incoming.until_sent:
            await send(start)
            body = memoryview(answer.body)
            for at in range(0, len(body), PIECE):
                piece = body[at : at + PIECE]
                # Waits until the other end has taken nearly all that came before.
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})

    config = Config(
        respond,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=IDLE_S,
    )
    config.load()
    state = ServerState()
    return lambda: Connection(config, state, {})


@asynccontextmanager
async def server(answering: Answering, socket: Path) -> AsyncIterator[None]:
    socket.unlink(missing_ok=True)
    made = await asyncio.get_running_loop().create_unix_server(
        connections_of(answering), str(socket), backlog=BACKLOG
    )
    try:
        yield
    finally:
        made.close()
