"""Messages over gRPC take their share of memory as they come, and come fast enough; answers that
nobody reads take a bounded part of it, and hold up no others."""

import asyncio
import json
import socket
import time
from contextlib import ExitStack, closing
from typing import cast

import grpc
import psutil
import pytest

from benchmark.torture import unfinished
from benchmark.torture.subject import Subject
from bundle_door.front.messages import (
    DEADLINE_EXCEEDED,
    INFER,
    LOAD,
    STREAM,
    TRITON,
    UNAVAILABLE,
)
from bundle_door.limits import AHEAD_S, LATE_S
from bundle_door.wire import http2
from bundle_door.wire.calls import PREFIX, message_of, usual_fields
from bundle_serving.protocol.kserve import pb
from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked, Behind
from tests.door.test_attacks import GOOD, bystanders_of, of_envoys
from tests.door.test_clients import request_of
from tests.door.test_life import Conversation, Gate, gate
from tests.project import wait_until

__all__ = ["gate"]
LARGE, ECHOED = 60_000_000, 12_000_000
PERMISSION_DENIED, UNIMPLEMENTED = "7", "12"
TOO_SLOW, NO_ROOM = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE
MEGABYTE = request_of(b"\xff\xd8" + bytes(1_000_000))


def subject_of(server: Asked) -> Subject:
    return bystanders_of(server).subject


def codes_of(kept: list[grpc.Future]) -> set[grpc.StatusCode]:
    return {call.code() for call in kept}


async def begin(
    server: Asked, address: str, method: str, pieces: list[bytes], host: str = "127.0.0.1"
) -> tuple[http2.Connection, http2.Stream]:
    """From that address of this machine."""
    _, connection = await asyncio.get_running_loop().create_connection(
        http2.Connection, host, server.grpc_port, local_addr=(address, 0)
    )
    return connection, connection.request(usual_fields(method, 600), pieces)


def answered_from(
    address: str, server: Asked, asked: pb.ModelInferRequest, host: str = "127.0.0.1"
) -> bytes:
    async def ask() -> bytes:
        message = asked.SerializeToString()
        pieces = [PREFIX.pack(False, len(message)), message]
        connection, stream = await begin(server, address, INFER, pieces, host)
        with closing(connection):
            await stream.ended
            return message_of(stream)

    return asyncio.run(ask())


@on_a_gpu_too
def test_what_comes_too_slowly_ends(server: Asked) -> None:
    """A byte now and then, after little or much; and nothing at all."""
    subject = subject_of(server)
    with (
        bystanders_of(server) as bystanders,
        unfinished.messages(subject, 3, 1000, 1, pause_s=1) as little,
        unfinished.messages(subject, 3, 10_000_000, 1, pause_s=1) as much,
        unfinished.messages(subject, 3, 1000, 1) as nothing,
    ):
        for kept in (little, much, nothing):
            assert codes_of(kept) == {TOO_SLOW}
            assert "too slowly" in kept[0].details()
    assert not bystanders.count_failed()


@pytest.mark.parametrize("connections", [1, 9])
def test_an_address_has_its_share(server: Asked, connections: int) -> None:
    """What is beyond it is refused, while others are answered; and so is the first one, where it
    asks for little."""
    with unfinished.messages(subject_of(server), 9, LARGE, connections) as kept:
        wait_until(lambda: any(call.done() for call in kept), "one to be refused")
        assert answered_from("127.0.0.2", server, MEGABYTE)
        assert answered_from("127.0.0.1", server, request_of(GOOD[2]))
        assert codes_of(kept) <= {NO_ROOM, TOO_SLOW}
        assert kept[0].code() in (NO_ROOM, TOO_SLOW)
    assert answered_from("127.0.0.1", server, MEGABYTE)


@on_a_gpu_too
def test_what_has_ended_takes_no_share(server: Asked) -> None:
    """However it did: hung up, or answered."""
    before = of_envoys(server, "allocated")
    for _ in range(3):
        with unfinished.messages(subject_of(server), 4, LARGE, 4):
            wait_until(lambda: of_envoys(server, "allocated") > before + 3 * LARGE, "them to come")
        wait_until(lambda: of_envoys(server, "allocated") < before + LARGE, "them to be gone")
    for _ in range(40):
        assert answered_from("127.0.0.1", server, request_of(b"\xff\xd8" + bytes(10_000_000)))


@on_a_gpu_too
def test_five_of_60_mb_at_once(server: Asked) -> None:
    asked = request_of(b"\xff\xd8" + bytes(LARGE)).SerializeToString()
    sizes = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"localhost:{server.grpc_port}", sizes) as channel:
        ask = channel.unary_unary(INFER)
        assert codes_of([ask.future(asked) for _ in range(5)]) == {grpc.StatusCode.OK}


def test_a_stream_has_its_share_and_is_fast_enough(
    server: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address sends messages that stop, at their beginning or end, each after a small or a
    large one that was answered, and one that goes on byte by byte; another has a stream on which
    nothing happens, and which stays."""
    monkeypatch.setattr(http2, "END_STREAM", 0)
    small = request_of(GOOD[2])

    def pieces(first: pb.ModelInferRequest, size: int) -> list[bytes]:
        answered = first.SerializeToString()
        return [PREFIX.pack(False, len(answered)), answered, PREFIX.pack(False, LARGE), bytes(size)]

    async def attack() -> set[str]:
        sent = [pieces(small, LARGE - 1)] * 9
        sent += [pieces(first, 140_000) for first in [small, MEGABYTE] * 3]
        stopped = [await begin(server, "127.0.0.2", STREAM, each) for each in sent]
        async with asyncio.timeout(60):
            connection, slow = await begin(server, "127.0.0.2", STREAM, pieces(small, 1_000_000))
            while not all(stream.ended.done() for _, stream in [*stopped, (connection, slow)]):
                await asyncio.sleep(1)
                slow.unsent.append(memoryview(b"\0"))
                connection._send_waiting()
        assert slow.fields["grpc-status"] == DEADLINE_EXCEEDED
        for each, _ in stopped:
            each.close()
        connection.close()
        return {stream.fields["grpc-status"] for _, stream in stopped}

    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        idle = Conversation(channel)
        idle.ask(GOOD[2], id="1")
        assert idle.answer() == "1"
        assert asyncio.run(attack()) == {UNAVAILABLE, DEADLINE_EXCEEDED}
        idle.ask(GOOD[2], id="2")
        assert idle.answer() == "2"
        idle.hang_up()


def test_what_waits_for_an_answer_takes_a_share(server: Asked, gate: Gate) -> None:
    """Of a client that sends one message after the other, which Triton takes all."""
    waits = [request_of(gate.picture()).SerializeToString() for _ in range(2)]
    large = request_of(b"\xff\xd8" + bytes(LARGE)).SerializeToString()
    pieces = [(PREFIX.pack(False, len(each)), each) for each in [*waits, *[large] * 8]]

    async def attack() -> str:
        connection, stream = await begin(
            server, "127.0.0.2", STREAM, [piece for pair in pieces for piece in pair]
        )
        async with asyncio.timeout(60):
            await stream.ended
        connection.close()
        return stream.fields["grpc-status"]

    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        idle = Conversation(channel)
        assert asyncio.run(attack()) == UNAVAILABLE
        gate.open()
        idle.ask(GOOD[2], id="1")
        assert idle.answer() == "1"
        idle.hang_up()


def test_what_has_come_takes_a_share_until_it_is_answered(server: Asked, gate: Gate) -> None:
    """Of a client whose messages come one after the other, each whole, and are all in Triton."""
    large = request_of(b"\xff\xd8" + bytes(LARGE)).SerializeToString()

    async def attack() -> set[str]:
        sent = [request_of(gate.picture()).SerializeToString() for _ in range(2)]
        begun = []
        for message in [*sent, *[large] * 7]:
            pieces = [PREFIX.pack(False, len(message)), message]
            begun.append(await begin(server, "127.0.0.2", INFER, pieces))
            await asyncio.sleep(1)
        refused = [stream for _, stream in begun if stream.ended.done()]
        for connection, _ in begun:
            connection.close()
        await asyncio.gather(*[stream.ended for _, stream in begun], return_exceptions=True)
        return {stream.fields["grpc-status"] for stream in refused}

    assert asyncio.run(attack()) == {UNAVAILABLE}
    gate.open()
    assert answered_from("127.0.0.1", server, MEGABYTE)


@pytest.mark.parametrize(
    "method", [f"{TRITON}RepositoryIndex", LOAD, f"{TRITON}Nothing", f"{INFER}?x"]
)
def test_what_is_refused_anyway_takes_no_memory(
    server: Asked, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(http2, "END_STREAM", 0)

    async def attack() -> set[str]:
        pieces = [PREFIX.pack(False, LARGE), bytes(LARGE - 1)]
        begun = [await begin(server, "127.0.0.2", method, pieces) for _ in range(9)]
        async with asyncio.timeout(60):
            await asyncio.wait([stream.ended for _, stream in begun])
        for connection, _ in begun:
            connection.close()
        return {stream.fields["grpc-status"] for _, stream in begun}

    assert asyncio.run(attack()) in ({PERMISSION_DENIED}, {UNIMPLEMENTED})


def test_a_message_that_is_not_taken_is_not_too_slow(server: Asked, gate: Gate) -> None:
    """While the one before it is computed, where a stream asks about one after the other."""
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        stream = Conversation(channel, metadata=[("triton_grpc_error", "true")])
        stream.ask(gate.picture(), id="0")
        for number in "123":
            stream.ask(b"\xff\xd8" + bytes(20_000_000), id=number)
        time.sleep(LATE_S + AHEAD_S + 2)
        gate.open()
        assert [stream.answer() for _ in range(4)] == [*"0123"]
        stream.hang_up()


@pytest.mark.parametrize("method", [INFER, STREAM])
def test_answers_over_grpc_that_nobody_reads(server: Behind, method: str) -> None:
    """All clients' answers come on few connections of Envoy's."""
    message = pb.ModelInferRequest(
        model_name="echo",
        inputs=[
            pb.ModelInferRequest.InferInputTensor(
                name="IN_BOOL", datatype="BOOL", shape=[1, ECHOED]
            )
        ],
        outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="OUT_BOOL")],
        raw_input_contents=[bytes(ECHOED)],
    ).SerializeToString()
    before = memory_of_door(server)

    async def attack() -> None:
        connections = []
        for _ in range(30):
            pieces = [PREFIX.pack(False, len(message)), message]
            connection, stream = await begin(server, "127.0.0.2", method, pieces)
            connections.append(connection)
            async with asyncio.timeout(60):
                while stream.unsent and not stream.ended.done():
                    await asyncio.sleep(0.01)
            transport_of(connection).pause_reading()
        await asyncio.to_thread(answered_from, "127.0.0.3", server, request_of(GOOD[2]))
        for connection in connections:
            transport_of(connection).abort()

    asyncio.run(attack())
    assert memory_of_door(server) < before + 300_000_000


def test_answers_over_http_that_nobody_reads(server: Behind) -> None:
    asked = {
        "inputs": [
            {
                "name": "IN_BOOL",
                "shape": [1, ECHOED],
                "datatype": "BOOL",
                "parameters": {"binary_data_size": ECHOED},
            }
        ],
        "outputs": [{"name": "OUT_BOOL", "parameters": {"binary_data": True}}],
    }
    head = json.dumps(asked).encode()
    request = (
        b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: localhost\r\n"
        b"inference-header-content-length: %d\r\ncontent-length: %d\r\n\r\n%s"
    ) % (len(head), len(head) + ECHOED, head)
    before = memory_of_door(server)
    with ExitStack() as stack:
        for _ in range(60):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.http_port))
            client.sendall(request + bytes(ECHOED))
            client.settimeout(60)
            assert client.recv(12) == b"HTTP/1.1 200"
        assert memory_of_door(server) < before + 400_000_000
        assert server.ask("GET", "/v2/health/ready")[0] == 200
    wait_until(lambda: memory_of_door(server) < before + 50_000_000, "the memory to be free")


def memory_of_door(server: Behind) -> int:
    return psutil.Process(server.door.pid).memory_info().rss


def transport_of(connection: http2.Connection) -> asyncio.Transport:
    return cast(asyncio.Transport, connection._transport)
