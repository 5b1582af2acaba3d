import socket
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from tests.client.stand_in import StandIn, handler


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    behaviour = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(behaviour))
    server.daemon_threads = True
    behaviour.url = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield behaviour
    behaviour.drip.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
