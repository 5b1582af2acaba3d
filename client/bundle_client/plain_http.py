"""tritonclient's HTTP messages over the standard library's HTTP connection.

tritonclient.http brings gevent, which a program that uses threads pays for: its connection must
not leave the thread that made it, every thread that ends leaves four open files behind, and a
thread that still waits for an answer when Python ends (after Ctrl-C) ends it with a crash.
"""

import json
from contextlib import suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, RemoteDisconnected
from typing import Any
from urllib.parse import quote

from .server import Server


class PlainHttp:
    """Stands in for `tritonclient.http.InferenceServerClient` as far as it is needed here."""

    def __init__(self, tensors: Any, server: Server, context: Any) -> None:
        self._messages = tensors.InferenceServerClient
        self._failure = tensors.InferenceServerException
        self._line = HTTPConnection(server.host, server.port, timeout=server.timeout)
        if context:
            self._line = HTTPSConnection(
                server.host, server.port, timeout=server.timeout, context=context
            )

    def infer(
        self,
        model_name: str,
        inputs: list[Any],
        outputs: list[Any],
        headers: dict[str, str] | None = None,
    ) -> Any:
        body, header_length = self._messages.generate_request_body(inputs, outputs=outputs)
        path = f"{self._path(model_name)}/infer"
        headers = {"Inference-Header-Content-Length": str(header_length), **(headers or {})}
        used_before = self._line.sock is not None
        try:
            return self._exchange(path, body, headers)
        except (RemoteDisconnected, ConnectionResetError):
            # Only now does a connection say that the server closed it while it was idle.
            if not used_before:
                raise
            return self._exchange(path, body, headers)

    def get_model_config(self, model_name: str, headers: dict[str, str] | None = None) -> Any:
        path = f"{self._path(model_name)}/config"
        return json.loads(self._request("GET", path, headers=headers)[1])

    @staticmethod
    def _path(model_name: str) -> str:
        return f"/v2/models/{quote(model_name, safe='')}"

    def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        response, content = self._request("POST", path, body, headers)
        header_length = response.headers.get("Inference-Header-Content-Length")
        return self._messages.parse_response_body(content, header_length=header_length)

    def _request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[HTTPResponse, bytes]:
        try:
            # A server that refuses a large picture may answer, and hang up, before all is sent.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._line.request(method, path, body, headers or {})
            response = self._line.getresponse()
            content = response.read()
        except BaseException:
            self._line.close()
            raise
        if response.status != 200:
            failure = self._failure(words(content), str(response.status))
            failure.retry_after = response.headers.get("Retry-After")
            raise failure
        return response, content

    def close(self) -> None:
        self._line.close()


def words(content: bytes) -> str:
    """What Triton says about an error; empty if it is not Triton who speaks."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, LookupError, TypeError):
        return ""
