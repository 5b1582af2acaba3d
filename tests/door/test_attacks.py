"""Nothing that comes in through the door ends, fills or stops the server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import psutil
import pytest

from bundle_serving.kserve import pb
from tests.door.hostile import ATTACKS, JPEG, RAW, mutants, status_of
from tests.door.servers import Behind
from tests.project import wait_until

SEED = 15
# What may stay of an attack in the memory of door and server.
KEPT_BYTES = 100_000_000
# What a server of no fault of its own answers to anybody; None: the connection was closed.
HARMLESS = {None, 200, 400, 403, 404, 405, 408, 411, 413, 415, 417, 426, 431, 501}


def processes(server: Behind) -> list[psutil.Process]:
    roots = [psutil.Process(process.pid) for process in (server.triton, server.door)]
    return [process for root in roots for process in (root, *root.children(recursive=True))]


def memory(server: Behind) -> int:
    return sum(process.memory_full_info().uss for process in processes(server))


@contextmanager
def unharmed(server: Behind) -> Iterator[None]:
    """The same processes live on, answer, and hold no more than before."""
    good = ("POST", "/v2/models/picture/infer", JPEG, RAW)
    assert server.ask(*good)[0] == 200
    before, pids = memory(server), [process.pid for process in processes(server)]
    yield
    assert server.ask(*good)[0] == 200
    assert [process.pid for process in processes(server)] == pids
    wait_until(lambda: memory(server) < before + KEPT_BYTES, "memory to come back")


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(server: Behind, name: str) -> None:
    with unharmed(server):
        assert status_of(ATTACKS[name], server.http_port) == ATTACKS[name].status


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_mutants_over_http(server: Behind, count: int) -> None:
    with unharmed(server):
        for mutant in mutants(count, SEED):
            assert status_of(mutant, server.http_port) in HARMLESS, mutant


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.long)])
def test_mutants_over_grpc(server: Behind, count: int) -> None:
    with unharmed(server), grpc.insecure_channel(f"localhost:{server.grpc_port}") as channel:
        calls = [channel.unary_unary(f"/inference.GRPCInferenceService/{name}") for name in METHODS]
        stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        for chance, message in mutated_messages(count):
            try:
                if chance.random() < 0.2:
                    list(stream(iter([message]), timeout=60))
                else:
                    chance.choice(calls)(message, timeout=60)
            except grpc.RpcError as error:
                assert error.code() != grpc.StatusCode.UNAVAILABLE, (message, error.details())


METHODS = ["ModelInfer"] * 5 + ["ModelMetadata", "ModelConfig", "ModelReady", "ServerMetadata"]


def mutated_messages(count: int) -> Iterator[tuple[random.Random, bytes]]:
    chance = random.Random(SEED)
    for _ in range(count):
        shape = [chance.choice([1, 1, 1, 0, -1, 2**40, 2**62]), chance.choice([5, 5, 3, -7, 2**61])]
        datatype = chance.choice(["FP32", "FP32", "FP64", "BYTES", "BF16", "", "X" * 1000])
        tensor = pb.ModelInferRequest.InferInputTensor(
            name="IN_FP32", datatype=datatype, shape=shape
        )
        message = pb.ModelInferRequest(model_name="echo", inputs=[tensor])
        if chance.random() < 0.5:
            message.raw_input_contents.append(bytes(chance.choice([20, 0, 19, 5000])))
        else:
            tensor.contents.fp32_contents.extend([1.0] * chance.choice([5, 0, 4, 5000]))
            message = pb.ModelInferRequest(model_name="echo", inputs=[tensor])
        text = bytearray(message.SerializeToString())
        for _ in range(chance.choice([0, 0, 1, 4])):
            text[chance.randrange(len(text))] = chance.randrange(256)
        yield chance, bytes(text)


def test_idle_connections_are_no_burden(server: Behind) -> None:
    import socket

    with unharmed(server):
        idle = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(1500)]
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        for connection in idle:
            connection.close()
