"""HTTP over a Unix socket, with the standard library."""

import http.client
import socket
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bundle_serving.address import Address


class Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, host: str = "localhost", **options: Any) -> None:
        super().__init__(host, **options)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class AtSocket(Address):
    """A server that is asked there, whoever listens on its ports."""

    host: str = "localhost"
    port: int = 80
    socket: Path = Path()

    def connection(self, timeout: float) -> Connection:
        return Connection(self.socket, timeout=timeout)

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        connect = partial(Connection, self.socket)

        class Handler(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                return self.do_open(connect, request)

        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Handler)
        return opener.open(request, timeout=timeout)
