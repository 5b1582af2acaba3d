"""Requests that begin and do not end, as long as a `with` block lasts."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from benchmark.torture.requests import RAW, Hostile
from benchmark.torture.subject import Subject


@contextmanager
def bodies(subject: Subject, count: int, size: int, sent: int) -> Iterator[None]:
    """Over HTTP: each is said to have `size` bytes, of which `sent` come."""
    host, _, port = subject.http.rpartition(":")
    path = f"/v2/models/{subject.pipeline}/infer"
    claimed = {"Content-Length": str(size), **RAW}
    wire = b"".join(Hostile(0, bytes(sent), claimed, path).pieces())
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            with suppress(OSError):  # refused already
                client.sendall(wire)
        yield


WAYS: dict[str, Callable[[Subject], AbstractContextManager[None]]] = {
    "1,100 bodies that do not come": lambda subject: bodies(subject, 1100, 80, 0),
    "12 bodies of 64 MB that stop": lambda subject: bodies(subject, 12, 63_950_000, 63_900_000),
}
