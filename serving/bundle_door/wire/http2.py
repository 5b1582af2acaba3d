"""HTTP/2 to a server of ours on a Unix socket: as much of it as gRPC's answers to one request each
need.

The other end is always gRPC's own. What that never sends, such as a padded frame, ends the
connection, as does any fault.
"""

import asyncio
import functools
import struct
from collections import deque
from collections.abc import Iterable
from typing import cast

from hpack import Decoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer

# RFC 9113: kinds of frames, flags, settings, and reasons to end a stream.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
TABLE_BYTES, PUSH, WINDOW_BYTES, FRAME_BYTES, LIST_BYTES = 1, 2, 4, 5, 6
REFUSED_STREAM, CANCEL = 7, 8

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Their numbers have 31 bits; a busy server comes to the end of them after months.
MOST_STREAMS = (1 << 31) - 1
# Of a block of fields.
MOST_BLOCK = 1 << 16
USUAL_WINDOW, USUAL_FRAME, LARGEST_WINDOW = (1 << 16) - 1, 1 << 14, (1 << 31) - 1
# Of a frame: its length in three bytes, kind, flags, stream.
HEAD = struct.Struct(">BHBBL")
SETTING = struct.Struct(">HL")

Pairs = tuple[tuple[str, str], ...]
Pieces = Iterable[bytes | memoryview]


class Reset(Exception):
    """The other end has ended the stream."""

    def __init__(self, reason: int) -> None:
        super().__init__(f"the stream was ended, for reason {reason}")
        self.reason = reason


class Unreadable(Exception):
    """The other end has sent fields that are too large, or none."""


class Stream:
    """A request and its answer, which is complete when `ended` is done."""

    def __init__(self, number: int, window: int, body: Pieces) -> None:
        self.number = number
        # How much of the body the other end takes now.
        self.window = window
        self.unsent = deque(memoryview(piece) for piece in body if piece)
        self.fields: dict[str, str] = {}
        self.body: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self, fault: Exception | None = None) -> None:
        if self.ended.done():  # cancelled
            return
        if fault:
            self.ended.set_exception(fault)
        else:
            self.ended.set_result(None)


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        # Whether it takes further requests.
        self.usable = True
        self._streams: dict[int, Stream] = {}
        self._next = 1
        # What the other end takes: of all streams together, of each at first, and in one frame.
        self._window, self._first_window, self._most = USUAL_WINDOW, USUAL_WINDOW, USUAL_FRAME
        # What it has sent of what this end takes.
        self._received = 0
        # A frame, and a block of fields, of which the rest is on its way.
        self._begun = self._block = b""
        self._block_ends = False

    # Requests

    def request(self, block: bytes, body: Pieces) -> Stream:
        """With fields as `encoded` makes them, and a body that is not empty."""
        if self._transport.is_closing():
            raise ConnectionResetError("connection closed")
        stream = Stream(self._next, self._first_window, body)
        self._next += 2
        if self._next > MOST_STREAMS:
            self.usable = False  # for the next one; this one still gets its answer
        self._streams[stream.number] = stream
        head = frame(HEADERS, END_HEADERS, stream.number, block)
        self._transport.writelines([head, *self._sendable(stream)])
        return stream

    def cancel(self, stream: Stream) -> None:
        if self._streams.pop(stream.number, None):
            self._reset(stream)

    def close(self) -> None:
        self._transport.close()

    def _sendable(self, stream: Stream) -> list[bytes | memoryview]:
        """The next frames of its body, as far as the other end takes them."""
        frames: list[bytes | memoryview] = []
        while stream.unsent and (room := min(self._most, self._window, stream.window)) > 0:
            payload = cut(stream.unsent, room)
            size = sum(map(len, payload))
            self._window -= size
            stream.window -= size
            flags = 0 if stream.unsent else END_STREAM
            frames += [frame_head(size, DATA, flags, stream.number), *payload]
        return frames

    def _send_waiting(self) -> None:
        for stream in self._streams.values():
            if self._window <= 0:
                return
            if frames := self._sendable(stream):
                self._transport.writelines(frames)

    def _reset(self, stream: Stream) -> None:
        self._transport.write(frame(RST_STREAM, 0, stream.number, CANCEL.to_bytes(4, "big")))

    # What the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        # Without a table, each block of fields can be read by itself.
        wanted = {TABLE_BYTES: 0, PUSH: 0, WINDOW_BYTES: LARGEST_WINDOW, LIST_BYTES: MOST_BLOCK}
        settings = b"".join(SETTING.pack(*each) for each in wanted.items())
        self._transport.write(PREFACE + frame(SETTINGS, 0, 0, settings))
        self._take_more(LARGEST_WINDOW - USUAL_WINDOW)

    def connection_lost(self, fault: Exception | None) -> None:
        self._end(fault or ConnectionResetError("connection closed"))

    def data_received(self, data: bytes) -> None:
        data, place = self._begun + data, 0
        while len(data) >= (begins := place + HEAD.size):
            high, low, kind, flags, number = HEAD.unpack_from(data, place)
            ends = begins + (high << 16 | low)
            if len(data) < ends:
                break
            self._take(kind, flags, number, data[begins:ends])
            place = ends
        self._begun = data[place:]

    # Frames

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind == HEADERS:
            self._block_ends = bool(flags & END_STREAM)
            self._fields(flags, number, payload)
        elif kind == CONTINUATION:
            self._fields(flags, number, self._block + payload)
        elif kind == WINDOW_UPDATE:
            self._take_window(number, int.from_bytes(payload, "big"))
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self._transport.write(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            if stream := self._streams.pop(number, None):
                stream.end(Reset(int.from_bytes(payload, "big")))
        elif kind == GOAWAY:
            self._end(ConnectionResetError("connection closed"), int.from_bytes(payload[:4], "big"))

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        refuse(flags, PADDED)
        self._received += len(payload)
        if self._received > LARGEST_WINDOW // 2:
            self._take_more(self._received)
            self._received = 0
        if stream := self._streams.get(number):
            stream.body.append(payload)
            if flags & END_STREAM:
                self._finish(stream)

    def _fields(self, flags: int, number: int, block: bytes) -> None:
        refuse(flags, PADDED | PRIORITY)
        block = block[: MOST_BLOCK + 1]  # which is too large already
        self._block = b"" if flags & END_HEADERS else block
        if self._block:
            return
        if stream := self._streams.get(number):
            try:
                stream.fields.update(decode_block(block))
            except HPACKError as fault:
                # Of this stream alone: without a table no block depends on another.
                self.cancel(stream)
                stream.end(Unreadable(str(fault)))
                return
            if self._block_ends:
                self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        del self._streams[stream.number]
        if stream.unsent:  # refused before all of it was there
            self._reset(stream)
        stream.end()

    def _settings(self, payload: bytes) -> None:
        if len(payload) % SETTING.size:
            raise ConnectionAbortedError(f"settings of {len(payload)} bytes")
        for name, value in SETTING.iter_unpack(payload):
            if name == FRAME_BYTES:
                self._most = value
            elif name == WINDOW_BYTES:
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
        self._transport.write(frame(SETTINGS, ACK, 0, b""))
        self._send_waiting()

    def _take_window(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        elif stream := self._streams.get(number):
            stream.window += more
        self._send_waiting()

    def _take_more(self, count: int) -> None:
        self._transport.write(frame(WINDOW_UPDATE, 0, 0, count.to_bytes(4, "big")))

    def _end(self, fault: Exception, last: int = 0) -> None:
        """The streams after the `last` get no answer any more."""
        self.usable = False
        for number in [number for number in self._streams if number > last]:
            self._streams.pop(number).end(fault)


def cut(pieces: deque[memoryview], most: int) -> list[memoryview]:
    """What is first of them, without a copy."""
    taken = []
    while pieces and most:
        piece = pieces.popleft()
        if len(piece) > most:
            pieces.appendleft(piece[most:])
            piece = piece[:most]
        taken.append(piece)
        most -= len(piece)
    return taken


def frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return frame_head(len(payload), kind, flags, number) + payload


def frame_head(size: int, kind: int, flags: int, number: int) -> bytes:
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, number)


def refuse(flags: int, unexpected: int) -> None:
    if flags & unexpected:
        raise ConnectionAbortedError(f"a frame with the flags {flags}")


def encode_fields(fields: Pairs) -> bytes:
    """As literals, which are in no table and need none."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(text: str) -> bytes:
    return bytes(encode_integer(len(text), 7)) + text.encode("ascii")


@functools.lru_cache(64)
def decode_block(block: bytes) -> dict[str, str]:
    """Nearly all answers have the same."""
    if len(block) > MOST_BLOCK:
        raise OversizedHeaderListError(f"the fields have more than {MOST_BLOCK} bytes")
    return {str(name): str(value) for name, value in Decoder().decode(block)}
