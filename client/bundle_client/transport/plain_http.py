"""Triton's messages over the standard library's HTTP connection.

tritonclient.http brings gevent, which a program that uses threads pays for: its connection must
not leave the thread that made it, every thread that ends leaves four open files behind, and a
thread that still waits for an answer when Python ends (after Ctrl-C) ends it with a crash. It also
takes 0.2 s to import: pictures do without it, other inputs use its messages.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, IncompleteRead
from ssl import SSLEOFError
from typing import Any
from urllib.parse import quote

from ..server import Server

HEADER_LENGTH = "Inference-Header-Content-Length"
CHUNK = 1 << 16
# The other end has closed the connection; over TLS a write says so in words of its own.
CLOSED = BrokenPipeError, ConnectionResetError, SSLEOFError


class HttpError(Exception):
    """An answer other than 200, with the methods of tritonclient's `InferenceServerException`."""

    def __init__(self, message: str, status: str, retry_after: str | None) -> None:
        super().__init__(message)
        self._status, self.retry_after = status, retry_after

    def status(self) -> str:
        return self._status

    def message(self) -> str:
        return str(self)


class PlainHttp:
    """Stands in for `tritonclient.http.InferenceServerClient` as far as it is needed here."""

    def __init__(self, server: Server, context: Any) -> None:
        self._timeout = server.timeout
        self._line = HTTPConnection(server.host, server.port, timeout=server.timeout)
        if context:
            self._line = HTTPSConnection(
                server.host, server.port, timeout=server.timeout, context=context
            )

    def classify(
        self, model_name: str, picture: bytes, top: int, headers: dict[str, str] | None = None
    ) -> Any:
        """The answer's JSON."""
        size = len(picture)
        image = {"name": "INPUT", "shape": [1, size], "datatype": "UINT8"}
        wanted = {"name": "OUTPUT", "parameters": {"classification": top, "binary_data": False}}
        question = {
            "inputs": [{**image, "parameters": {"binary_data_size": size}}],
            "outputs": [wanted],
        }
        head = json.dumps(question).encode()
        _, content = self._post(model_name, head + picture, len(head), headers)
        return json.loads(content.decode(errors="replace"))

    def infer(
        self,
        model_name: str,
        inputs: list[Any],
        outputs: list[Any],
        headers: dict[str, str] | None = None,
    ) -> Any:
        from tritonclient.http import InferenceServerClient as Messages

        body, length = Messages.generate_request_body(inputs, outputs=outputs)
        response, content = self._post(model_name, body, length, headers)
        return Messages.parse_response_body(content, header_length=response.headers[HEADER_LENGTH])

    def _post(
        self, model_name: str, body: bytes, length: int, headers: dict[str, str] | None
    ) -> tuple[HTTPResponse, bytes]:
        path = f"/v2/models/{quote(model_name, safe='')}/infer"
        headers = {HEADER_LENGTH: str(length), **(headers or {})}
        try:
            return self._request("POST", path, body, headers)
        except CLOSED:
            # Only now does a connection say that the server closed it while it was idle, or that it
            # leads to one that is about to end. Asking a classifier twice does no harm.
            return self._request("POST", path, body, headers)

    def get_server_metadata(self, headers: dict[str, str] | None = None) -> Any:
        return json.loads(self._request("GET", "/v2", headers=headers)[1])

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[HTTPResponse, bytes]:
        deadline = time.monotonic() + self._timeout
        try:
            if self._line.sock is None:
                self._line.connect()
            # A server that refuses a large picture may answer, and hang up, before all is sent.
            with suppress(*CLOSED):
                self._line.request(method, path, body, headers or {})
            response = self._line.getresponse()
            content = read_in_time(response, deadline)
        except BaseException:
            self._line.close()
            raise
        if response.status != 200:
            retry_after = response.headers.get("Retry-After")
            raise HttpError(read_message(content), str(response.status), retry_after)
        return response, content

    def close(self) -> None:
        self._line.close()


def take_in_time(response: HTTPResponse, deadline: float) -> Iterator[bytes]:
    """As it arrives: what comes byte by byte would never meet the socket's own timeout."""
    while piece := response.read1(CHUNK):
        yield piece
        if time.monotonic() > deadline:
            raise TimeoutError


def read_in_time(response: HTTPResponse, deadline: float) -> bytes:
    content = b"".join(take_in_time(response, deadline))
    response.close()  # else Python 3.11 takes no further request on its connection
    if response.length:
        raise IncompleteRead(content, response.length)
    return content


def read_message(content: bytes) -> str:
    """What Triton says about an error; empty if it is not Triton who speaks."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, LookupError, TypeError):
        return ""
