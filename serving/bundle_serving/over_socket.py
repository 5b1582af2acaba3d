"""HTTP over a Unix socket, by the standard library.

urllib.request.install_opener(over_socket.opener(path))
"""

from __future__ import annotations

import http.client
import socket
import urllib.request
from pathlib import Path
from typing import Any


def opener(path: Path) -> urllib.request.OpenerDirector:
    """Asks there, whatever host a URL names."""

    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(str(path))

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> Any:
            return self.do_open(Connection, request)

    return urllib.request.build_opener(urllib.request.ProxyHandler({}), Handler)
