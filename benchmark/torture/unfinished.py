"""Requests that begin and do not end, as long as a `with` block lasts."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import grpc

from benchmark.torture.requests import RAW, Hostile
from benchmark.torture.subject import Subject

SERVICE = "/inference.GRPCInferenceService/"


@contextmanager
def bodies(subject: Subject, count: int, size: int, sent: int) -> Iterator[None]:
    """Over HTTP: each is said to have `size` bytes, of which `sent` come."""
    path = f"/v2/models/{subject.pipeline}/infer"
    claimed = {"Content-Length": str(size), **RAW}
    wire = b"".join(Hostile(0, bytes(sent), claimed, path).pieces())
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(subject.place))
            with suppress(OSError):  # refused already
                client.sendall(wire)
        yield


@contextmanager
def messages(
    subject: Subject, count: int, size: int, connections: int, pause_s: float | None = None
) -> Iterator[list[grpc.Future]]:
    """Over gRPC: of each, `size` bytes come, and not its end; but a byte after each pause, if there
    are any."""
    ended = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield bytes(size)
        while not ended.wait(pause_s):
            yield bytes(1)

    with ExitStack() as stack:
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        channels = [
            stack.enter_context(grpc.insecure_channel(subject.grpc, own))
            for _ in range(connections)
        ]
        stack.callback(ended.set)
        calls = [channel.stream_unary(f"{SERVICE}ModelInfer") for channel in channels]
        kept = [calls[number % connections].future(pieces()) for number in range(count)]
        yield kept
        for call in kept:
            call.cancel()


WAYS: dict[str, Callable[[Subject], AbstractContextManager[object]]] = {
    "1,100 bodies that do not come": lambda subject: bodies(subject, 1100, 80, 0),
    "12 bodies of 64 MB that stop": lambda subject: bodies(subject, 12, 63_950_000, 63_900_000),
    "9 messages of 63 MB that stop": lambda subject: messages(subject, 9, 63_000_000, 1),
    "600 messages of 1 MB that stop": lambda subject: messages(subject, 600, 1_000_000, 4),
    "9 messages of 63 MB that go on byte by byte": lambda subject: messages(
        subject, 9, 63_000_000, 9, pause_s=1
    ),
}
