"""The door's HTTP/1 and its own HTTP/2, given what is cut anywhere, mutated, or made up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from hpack import Encoder

from bundle_door.answers import Answer
from bundle_door.wire import http1, http2
from bundle_door.wire.http1 import Incoming

SEEDS = range(40)
EACH = 25
REQUEST = (
    b"POST /v2/models/a%20b/infer?top=3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n",
)
BLOCK = Encoder().encode([(":status", "200"), ("grpc-status", "0"), ("x", "y" * 300)])
KINDS = (*range(10), 255)


class Wire(asyncio.Transport):
    """Keeps what is written, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.paused = False

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.written += data

    def writelines(self, pieces: Iterable[bytes | bytearray | memoryview[int]]) -> None:
        self.written += b"".join(pieces)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def cut(data: bytes, random: Random) -> Iterator[bytes]:
    places = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(12)))
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[begin:end]


def mutate(data: bytes, random: Random) -> bytes:
    text = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(text))
        kind = random.randrange(4)
        if kind == 0:
            text[at] = random.randrange(256)
        elif kind == 1:
            del text[at : at + random.randrange(1, 9)]
        elif kind == 2:
            text[at:at] = random.randbytes(random.randrange(1, 9))
        else:
            text[at:at] = text[: random.randrange(len(text))]
        text = text or bytearray(data)
    return bytes(text)


def feed(protocol: asyncio.Protocol, wire: Wire, pieces: Iterable[bytes]) -> None:
    """As an event loop does: never nothing, and what is refused ends the connection."""
    for piece in filter(None, pieces):
        if wire.closed:
            return
        try:
            protocol.data_received(piece)
        except ConnectionAbortedError as fault:
            wire.close()
            protocol.connection_lost(fault)


# HTTP/1


async def tell(incoming: Incoming) -> Answer:
    body = b""
    while piece := await incoming.body.read():
        body += piece
    return Answer(f"{incoming.method} {incoming.path} {incoming.query} ".encode() + body)


async def ask_http1(pieces: Iterable[bytes]) -> bytes:
    wire, running = Wire(), asyncio.all_tasks()
    connection = http1.connections_of(tell)()
    connection.connection_made(wire)
    for piece in pieces:
        feed(connection, wire, [piece])
        await asyncio.sleep(0)  # lets the answer go on; each asks for nothing else
    for _ in range(5):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    left = asyncio.all_tasks() - running
    async with asyncio.timeout(60):
        await asyncio.gather(*left)
    return wire.written


@pytest.mark.parametrize("seed", SEEDS)
def test_requests_are_the_same_wherever_they_are_cut(seed: int) -> None:
    random = Random(seed)
    for request in REQUEST:
        whole = asyncio.run(ask_http1([request]))
        assert whole.startswith(b"HTTP/1.1 200 ")
        for _ in range(EACH // 5):
            assert asyncio.run(ask_http1(cut(request, random))) == whole


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_requests_are_answered_or_refused_and_keep_nothing(seed: int) -> None:
    random = Random(seed)

    async def ask() -> None:
        for _ in range(EACH):
            said = await ask_http1(cut(mutate(random.choice(REQUEST), random), random))
            assert said == b"" or said.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 "))

    asyncio.run(ask())


# HTTP/2


def begin(body: bytes) -> tuple[http2.Connection, Wire, http2.Stream]:
    connection, wire = http2.Connection(), Wire()
    connection.connection_made(wire)
    return connection, wire, connection.request(http2.encode_fields(((":path", "/"),)), [body])


def make_answer(number: int, body: bytes, random: Random) -> bytes:
    """The fields in up to three frames, and the message in as many as it happens."""
    first, *rest = (piece for piece in cut(BLOCK, random))
    frames = [http2.frame(http2.HEADERS, 0 if rest else http2.END_HEADERS, number, first)]
    for left, piece in reversed([*enumerate(reversed(rest))]):
        flags = 0 if left else http2.END_HEADERS
        frames.append(http2.frame(http2.CONTINUATION, flags, number, piece))
    frames += [http2.frame(http2.DATA, 0, number, piece) for piece in cut(body, random)]
    frames.append(http2.frame(http2.DATA, http2.END_STREAM, number, b""))
    return b"".join(frames)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_the_same_wherever_they_are_cut(seed: int) -> None:
    random = Random(seed)

    async def ask() -> None:
        for _ in range(EACH):
            connection, wire, stream = begin(b"asked")
            body = random.randbytes(random.randrange(1000))
            feed(connection, wire, cut(make_answer(stream.number, body, random), random))
            assert stream.ended.done() and stream.ended.exception() is None
            assert b"".join(stream.body) == body
            assert stream.fields["grpc-status"] == "0" and connection.usable

    asyncio.run(ask())


def make_frame(number: int, random: Random) -> bytes:
    payload = random.choice([b"", BLOCK, random.randbytes(random.randrange(20))])
    stream = random.choice([0, number, number + 2, random.getrandbits(31)])
    return http2.frame(random.choice(KINDS), random.randrange(256), stream, payload)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_no_request_waits_after_its_connection(seed: int) -> None:
    random = Random(seed)

    async def ask() -> None:
        for _ in range(EACH):
            connection, wire, stream = begin(b"asked" * 40_000)
            odd = b"".join(make_frame(stream.number, random) for _ in range(6))
            answer = make_answer(stream.number, b"answer", random)
            feed(connection, wire, cut(random.choice([odd, mutate(answer, random)]), random))
            connection.connection_lost(None)
            assert stream.ended.done() and not connection.usable
            stream.ended.exception()

    asyncio.run(ask())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_is_sent_than_the_other_end_takes(seed: int) -> None:
    random = Random(seed)

    async def ask() -> None:
        whole = http2.USUAL_WINDOW * 3
        connection, wire, stream = begin(bytes(whole))
        of_all = of_stream = http2.USUAL_WINDOW
        while not is_complete(wire.written):
            more = random.randrange(1, 50_000)
            number = random.choice([0, stream.number])
            of_all += more if number == 0 else 0
            of_stream += more if number else 0
            update = http2.frame(http2.WINDOW_UPDATE, 0, number, more.to_bytes(4, "big"))
            feed(connection, wire, [update])
            sent = sum(size for size, _ in data_frames(wire.written))
            assert sent == min(of_all, of_stream, whole)
            assert all(size <= http2.USUAL_FRAME for size, _ in data_frames(wire.written))

    asyncio.run(ask())


def is_complete(written: bytes) -> bool:
    return any(flags & http2.END_STREAM for _, flags in data_frames(written))


def data_frames(written: bytes) -> Iterator[tuple[int, int]]:
    """Their sizes and flags."""
    place = len(http2.PREFACE)
    while place < len(written):
        high, low, kind, flags, _ = http2.HEAD.unpack_from(written, place)
        size = high << 16 | low
        if kind == http2.DATA:
            yield size, flags
        place += http2.HEAD.size + size
