"""Calls over gRPC, each with one request and one answer, on one connection that is kept.

By HTTP/2 of our own: grpc.aio takes more than twice the processor time (docs/door.md).
"""

import asyncio
import functools
import math
import struct
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import grpc

from bundle_door.wire import http2

# Before a message: whether it is compressed, and its length.
PREFIX = struct.Struct(">?L")
UNKNOWN = 2
CODES = {code.value[0]: code for code in grpc.StatusCode}
# https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors
OF_RESET = {
    http2.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    http2.CANCEL: grpc.StatusCode.CANCELLED,
}


class CallFailed(Exception):
    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Disconnected(CallFailed):
    """There is no server, or it went away: with the request, if that had been sent."""

    def __init__(self, fault: OSError, sent: bool) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, f"no connection: {fault}")
        self.sent = sent


class Calls:
    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._connection: http2.Connection | None = None
        self._connecting = asyncio.Lock()

    async def call(
        self,
        method: str,
        message: Sequence[bytes | memoryview],
        timeout: float,
        metadata: http2.Pairs = (),
    ) -> bytes:
        """The answer's message, or `CallFailed`. If it is cancelled, Triton's work is too."""
        body = [PREFIX.pack(False, sum(map(len, message))), *message]
        sent = False
        try:
            connection = await self._connect()
            fields = usual_fields(method, timeout) + http2.encode_fields(metadata)
            stream = connection.request(fields, body)
            sent = True
            overdue = self._loop.call_later(timeout, stream.end, TimeoutError())
            try:
                await stream.ended
                return message_of(stream)
            finally:
                overdue.cancel()
                connection.cancel(stream)
                # Else a fault and this frame refer to each other, and keep the body until they are
                # found.
                del stream, overdue
        except TimeoutError:
            raise CallFailed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        except http2.Reset as reset:
            code = OF_RESET.get(reset.reason, grpc.StatusCode.INTERNAL)
            raise CallFailed(code, str(reset)) from None
        except http2.Unreadable as fault:
            why = f"the answer cannot be read: {fault}"
            raise CallFailed(grpc.StatusCode.INTERNAL, why) from None
        except OSError as fault:
            raise Disconnected(fault, sent) from None

    def close(self) -> None:
        if self._connection:
            self._connection.close()

    async def _connect(self) -> http2.Connection:
        if (known := self._connection) and known.usable:
            return known
        async with self._connecting:
            if not (self._connection and self._connection.usable):
                _, self._connection = await self._loop.create_unix_connection(
                    http2.Connection, str(self._socket)
                )
            return self._connection


@functools.lru_cache(64)
def usual_fields(method: str, timeout: float) -> bytes:
    return http2.encode_fields(
        (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", f"{math.ceil(timeout * 1000)}m"),
        )
    )


def message_of(stream: http2.Stream) -> bytes:
    code = CODES.get(int(stream.fields.get("grpc-status", UNKNOWN)), grpc.StatusCode.UNKNOWN)
    if code is not grpc.StatusCode.OK:
        raise CallFailed(code, unquote(stream.fields.get("grpc-message", "")))
    return b"".join(stream.body)[PREFIX.size :]
