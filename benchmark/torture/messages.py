"""Messages over gRPC that no client of good will sends."""

from __future__ import annotations

import random
from collections.abc import Iterator

import grpc

from benchmark.torture.requests import Target
from bundle_serving.kserve import pb

SERVICE = "/inference.GRPCInferenceService/"
METHODS = ["ModelInfer"] * 5 + ["ModelMetadata", "ModelConfig", "ModelReady", "ServerMetadata"]
STREAMED = 0.2
ANSWER_S = 60


def answers(
    address: str, target: Target, count: int, seed: int
) -> Iterator[tuple[bytes, grpc.StatusCode, str]]:
    """Each message, and what it gets. The same ones for the same seed."""
    chance = random.Random(seed)
    with grpc.insecure_channel(address) as channel:
        calls = [channel.unary_unary(SERVICE + name) for name in METHODS]
        stream = channel.stream_stream(f"{SERVICE}ModelStreamInfer")
        for _ in range(count):
            message = _mutant(target, chance)
            try:
                if chance.random() < STREAMED:
                    list(stream(iter([message]), timeout=ANSWER_S))
                else:
                    chance.choice(calls)(message, timeout=ANSWER_S)
                yield message, grpc.StatusCode.OK, ""
            except grpc.RpcError as fault:
                yield message, fault.code(), fault.details() or ""


def _mutant(target: Target, chance: random.Random) -> bytes:
    tensor, size = target.tensor, len(target.binary)
    last = chance.choice([tensor["shape"][-1]] * 2 + [3, -7, 2**61])
    message = pb.ModelInferRequest(model_name=target.model)
    asked = message.inputs.add(
        name=tensor["name"],
        datatype=chance.choice(
            [tensor["datatype"]] * 2 + ["FP64", "BYTES", "BF16", "", "X" * 1000]
        ),
        shape=[chance.choice([1, 1, 1, 0, -1, 2**40, 2**62]), last],
    )
    if chance.random() < 0.5:
        other = bytes(chance.choice([0, size - 1, 5000]))
        message.raw_input_contents.append(chance.choice([target.binary, other]))
    else:
        asked.contents.fp32_contents.extend([1.0] * chance.choice([5, 0, 4, 5000]))
    text = bytearray(message.SerializeToString())
    for _ in range(chance.choice([0, 0, 1, 4])):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)
