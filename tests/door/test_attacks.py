"""Nothing that comes in through the door ends, fills or stops the server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import psutil
import pytest
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from benchmark.torture import messages, unfinished
from benchmark.torture.bystanders import Bystanders
from benchmark.torture.requests import HARMLESS, RAW, Hostile, Target, attacks, mutants, status_of
from benchmark.torture.subject import Subject
from bundle_door.wire import http2
from bundle_door.wire.calls import PREFIX, usual_fields
from bundle_door.wire.inference import classes_of
from bundle_serving.protocol.kserve import pb
from tests.door.rehearsed import on_a_gpu_too
from tests.door.servers import Asked, OverUnixSocket
from tests.project import wait_until

pytestmark = on_a_gpu_too

SEED = 15
# What may stay of an attack in the memory of door and server.
KEPT_BYTES = 100_000_000
# That bystanders get while something is done.
ANSWERS = 60
JPEG = b"\xff\xd8" + bytes(range(256))
FLOATS = {"name": "IN_FP32", "datatype": "FP32", "shape": [1, 5], "data": [1, 2, 3, 4, 5]}
TARGET = Target("echo", FLOATS, bytes(20))
ATTACKS = attacks(TARGET)
WORDS = {"datatype": "BYTES", "name": "IN_STRING", "data": ["a", "b", "c", "d", "e"]}
SEEDS = [
    *TARGET.seeds(),
    TARGET.request(200, TARGET.make_body(**WORDS)),
    Hostile(200, JPEG, RAW, "/v2/models/picture/infer"),
    Hostile(200, b"text", RAW, "/v2/models/text/infer"),
]


def processes(server: Asked) -> list[psutil.Process]:
    roots = map(psutil.Process, server.roots())
    return [process for root in roots for process in (root, *root.children(recursive=True))]


def memory(server: Asked) -> int:
    held = sum(process.memory_full_info().uss for process in processes(server))
    return held - free_in_envoy(server)


def free_in_envoy(server: Asked) -> int:
    """In its own heap, of which the system has some back only after five minutes."""
    return of_envoys(server, "pageheap_free")


def of_envoys(server: Asked, what: str) -> int:
    """Bytes."""
    admins = map(OverUnixSocket, server.envoys())
    told = [server.ask("GET", "/memory", connection=admin)[2] for admin in admins]
    return sum(int(json.loads(body)[what]) for body in told)


GOOD = ("POST", "/v2/models/picture/infer", JPEG, RAW)


@contextmanager
def bystander(server: Asked) -> Iterator[None]:
    """Asks meanwhile, and is answered each time."""
    done, statuses = threading.Event(), []

    def ask() -> None:
        while not done.wait(0.02):
            statuses.append(server.ask(*GOOD)[0])

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield
        finally:
            done.set()
        asking.result()
    assert {*statuses} <= {200}


@contextmanager
def unharmed(server: Asked) -> Iterator[None]:
    """The same processes live on, answer, and hold no more than before."""
    assert server.ask(*GOOD)[0] == 200
    before, pids = memory(server), [process.pid for process in processes(server)]
    with bystander(server):
        yield
    assert server.ask(*GOOD)[0] == 200
    assert [process.pid for process in processes(server)] == pids
    wait_until(lambda: memory(server) < before + KEPT_BYTES, "memory to come back")


def bystanders_of(server: Asked) -> Bystanders:
    http, over_grpc = f"127.0.0.1:{server.http_port}", f"127.0.0.1:{server.grpc_port}"
    return Bystanders(Subject(server.roots()[0], http, over_grpc, "picture"))


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(server: Asked, name: str) -> None:
    with unharmed(server):
        assert status_of(ATTACKS[name], server.http_port) == ATTACKS[name].status


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.rare)])
def test_mutants_over_http(server: Asked, count: int) -> None:
    with unharmed(server):
        for mutant in mutants(SEEDS, count, SEED):
            assert status_of(mutant, server.http_port) in HARMLESS, mutant


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.rare)])
def test_mutants_over_grpc(server: Asked, count: int) -> None:
    with unharmed(server):
        for message, code, details in messages.answers(
            f"localhost:{server.grpc_port}", TARGET, count, SEED
        ):
            assert code != grpc.StatusCode.UNAVAILABLE, (message, details)


@pytest.mark.parametrize("name", unfinished.WAYS)
def test_what_is_begun_and_not_ended_keeps_nobody_waiting(server: Asked, name: str) -> None:
    bystanders = bystanders_of(server)
    with unharmed(server), bystanders, unfinished.WAYS[name](bystanders.subject):
        wait_until(lambda: len(bystanders.waits) >= ANSWERS, "bystanders' answers")
    assert not bystanders.count_failed()


@pytest.mark.parametrize("stream", [False, True])
def test_messages_that_fill_or_cut(server: Asked, stream: bool) -> None:
    """Others are answered meanwhile, and none of them is told to try again."""
    with (
        unharmed(server),
        bystanders_of(server) as bystanders,
        grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel,
    ):
        ask = messages.make_asker(channel, stream)
        for name, message in messages.hostile(TARGET).items():
            for _ in range(3):
                assert ask(message) == grpc.StatusCode.INVALID_ARGUMENT, name
    assert not bystanders.count_failed()


@pytest.mark.parametrize("stream", [False, True])
def test_compressed_messages_are_refused(server: Asked, stream: bool) -> None:
    """Whatever they would become."""
    with (
        unharmed(server),
        grpc.insecure_channel(
            f"localhost:{server.grpc_port}", compression=grpc.Compression.Gzip
        ) as channel,
    ):
        assert messages.make_asker(channel, stream)(bytes(300_000_000)) == (
            grpc.StatusCode.UNIMPLEMENTED
        )


def test_messages_of_streams_that_stop(server: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each, all but the end comes; those that wait for longest are ended."""
    monkeypatch.setattr(http2, "END_STREAM", 0)
    begun = [PREFIX.pack(False, 63_900_000), bytes(63_000_000)]

    async def send() -> None:
        loop, sent = asyncio.get_running_loop(), []
        for _ in range(30):
            _, connection = await loop.create_connection(
                http2.Connection, "127.0.0.1", server.grpc_port
            )
            fields = usual_fields(f"{messages.SERVICE}ModelStreamInfer", 60)
            sent.append((connection, connection.request(fields, begun)))
        async with asyncio.timeout(60):
            while sum(stream.ended.done() for _, stream in sent) < 10:
                await asyncio.sleep(0.1)
        for connection, stream in sent:
            connection.cancel(stream)
            connection.close()

    before = memory(server)
    with unharmed(server), bystanders_of(server) as bystanders:
        asyncio.run(send())
    assert not bystanders.count_failed() and bystanders.peak < before + 1_000_000_000


@pytest.mark.parametrize("method", [*messages.NAMING, "ModelInfer"])
def test_what_is_no_message_is_the_clients_fault(server: Asked, method: str) -> None:
    with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"{messages.SERVICE}{method}")
        for no_message in (b"\x0a\xff", messages.field(1, b"\xff")):
            with pytest.raises(grpc.RpcError) as refusal:
                call(no_message, timeout=60)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("way", ["HTTP", "ModelInfer", "ModelStreamInfer"])
def test_texts_have_no_classes(server: Asked, way: str) -> None:
    """Over them Triton divides by zero, and ends."""
    with unharmed(server):
        if way == "HTTP":
            text = {"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}
            output = {"name": "CAPITALS", "parameters": {"classification": 1}}
            asked = json.dumps({"inputs": [text], "outputs": [output]}).encode()
            status, _, answer = server.ask("POST", "/v2/models/text/infer", asked)
            assert status == 400 and b"texts have no classes" in answer
            return
        tensor = pb.ModelInferRequest.InferInputTensor(name="TEXT", datatype="BYTES", shape=[1, 1])
        message = pb.ModelInferRequest(
            model_name="text",
            inputs=[tensor],
            outputs=[classes_of("CAPITALS", 1)],
            raw_input_contents=[b"\1\0\0\0a"],
        )
        with grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
            stub = GRPCInferenceServiceStub(channel)
            for _ in range(2):  # the second time Envoy knows
                with pytest.raises(grpc.RpcError, match="texts have no classes") as refusal:
                    if way == "ModelInfer":
                        stub.ModelInfer(message, timeout=60)
                    next(stub.ModelStreamInfer(iter([message]), timeout=60))
                assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", messages.NAMING)
def test_a_long_name_elsewhere(server: Asked, method: str) -> None:
    with (
        bystanders_of(server) as bystanders,
        grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel,
    ):
        call = channel.unary_unary(f"{messages.SERVICE}{method}")
        for _ in range(10):
            with pytest.raises(grpc.RpcError) as refusal:
                call(messages.field(1, messages.LONG), timeout=60)
            assert refusal.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not bystanders.count_failed()


def test_idle_connections_are_no_burden(server: Asked) -> None:
    import socket

    with unharmed(server):
        idle = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(1500)]
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        for connection in idle:
            connection.close()
