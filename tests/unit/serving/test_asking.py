"""Whether users are let in: what a busy door does is no reason to restart it."""

import argparse
import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from bundle_keeper.asking import Front

# The connection is reset where it is closed.
AT_ONCE = struct.pack("ii", 1, 0)


@contextmanager
def closing(reset: bool) -> Iterator[int]:
    """A port where each connection is taken and closed, as by Envoy when it has too many."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def close_each() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                if reset:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                connection.close()

        thread = threading.Thread(target=close_each)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def explain(**others: int) -> str | None:
    given = {"http_port": 0, "grpc_port": 0, "door_last": False, **others}
    options = argparse.Namespace(address="127.0.0.1", admin_key_file=None, **given)
    return asyncio.run(Front(options).explain_closed("picture"))


@pytest.mark.parametrize("port", ["http_port", "grpc_port"])
@pytest.mark.parametrize("reset", [False, True])
def test_too_many_connections_are_no_reason(port: str, reset: bool) -> None:
    with closing(reset) as number:
        assert explain(**{port: number}) is None


class OfAnother(BaseHTTPRequestHandler):
    """The door of a server that has not this pipeline."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("shared", [False, True])
def test_another_server_may_answer_at_a_port_that_is_shared(shared: bool) -> None:
    with HTTPServer(("127.0.0.1", 0), OfAnother) as other:
        threading.Thread(target=other.serve_forever).start()
        why = explain(http_port=other.server_port, door_last=shared)
        other.shutdown()
    assert (why is None) == shared


@pytest.mark.parametrize("port", ["http_port", "grpc_port"])
def test_a_port_where_nobody_listens_is_one(port: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.getsockname()[1]
    assert str(number) in (explain(**{port: number}) or "")
