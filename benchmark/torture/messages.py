"""Messages over gRPC that no client of good will sends."""

import random
from collections.abc import Callable, Iterator

import grpc

from benchmark.torture.requests import Target
from bundle_serving.protocol.kserve import pb

SERVICE = "/inference.GRPCInferenceService/"
METHODS = ["ModelInfer"] * 5 + ["ModelMetadata", "ModelConfig", "ModelReady", "ServerMetadata"]
# Those whose messages begin with a name.
NAMING = ["ModelMetadata", "ModelConfig", "ModelReady"]
STREAMED = 0.2
ANSWER_S = 60


MANY = 150_000
LONG = bytes(66_000)


def field(number: int, content: bytes) -> bytes:
    """As protobuf writes it: its number, its length, and what is in it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def hostile(target: Target) -> dict[str, bytes]:
    """What filled a server, kept it from all others, or cut their connection: too many of what
    there may be, names that come back in a header, and what is no message."""
    good = field(1, target.model.encode())
    entry = field(1, b"p") + field(2, field(3, b"x"))
    tensor = field(1, b"t") + field(2, b"FP32")
    parameters = MANY * field(4, entry)
    return {
        "150,000 inputs": good + MANY * field(5, tensor),
        "150,000 outputs": good + MANY * field(6, field(1, b"t")),
        "150,000 parameters": good + parameters,
        "150,000 parameters of an input": good + field(5, tensor + parameters),
        "150,000 parameters of an output": good + field(6, MANY * field(2, entry)),
        "150,000 empty tensors": good + MANY * field(7, b""),
        "150,000 empty texts": good + field(5, tensor + field(5, MANY * field(8, b""))),
        "150,000 numbers of a shape": good + field(5, tensor + field(3, bytes(MANY))),
        "the same one by one": good + field(5, tensor + MANY * b"\x18\x01"),
        "150,000 fields that are unknown": good + MANY * b"\x78\x01",
        "a model's name of 66 kB": field(1, LONG),
        "a version of 66 kB": good + field(2, LONG),
        "an id of 66 kB": good + field(3, LONG),
        "an input's name of 66 kB": good + field(5, field(1, LONG)),
        "a datatype of 66 kB": good + field(5, field(1, b"t") + field(2, LONG)),
        "an output's name of 66 kB": good + field(6, field(1, LONG)),
        "a parameter's name of 66 kB": good + field(4, field(1, LONG)),
        "a parameter's text of 66 kB": good + field(4, field(1, b"p") + field(2, field(3, LONG))),
        "a name of 66 kB in a field whose number is too large": field(1 << 29 | 1, LONG),
        "150,000 texts in such a field": field(
            1 << 29 | 5, tensor + field(5, MANY * field(8, b""))
        ),
        "the last name of several": good + 3 * field(1, b"x") + field(1, LONG),
        "a message that is cut": (good + field(5, tensor))[:-3],
        "a length beyond its end": good + b"\x2a\xff\xff\xff\x7f",
        "a number without end": good + b"\xff" * 12,
        "a group": good + b"\x7b\x7c",
        "field 0": b"\x02\x00" + good,
    }


def make_asker(channel: grpc.Channel, stream: bool = False) -> Callable[[bytes], grpc.StatusCode]:
    """What a message is answered with, alone or in a stream."""
    alone = channel.unary_unary(f"{SERVICE}ModelInfer")
    streamed = channel.stream_stream(f"{SERVICE}ModelStreamInfer")

    def ask(message: bytes) -> grpc.StatusCode:
        try:
            if stream:
                list(streamed(iter([message]), timeout=ANSWER_S))
            else:
                alone(message, timeout=ANSWER_S)
        except grpc.RpcError as fault:
            return fault.code()
        return grpc.StatusCode.OK

    return ask


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
