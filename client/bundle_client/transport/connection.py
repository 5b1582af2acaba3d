"""Connections to the server, over HTTP or gRPC, synchronous or not."""

import os
import socket
import ssl
import sys
from collections.abc import Awaitable
from importlib import import_module
from types import ModuleType
from typing import Any

from ..answers import Form, question
from ..errors import NotInstalled, ServerUnreachable
from ..server import Protocol, Server
from .faults import unreachable
from .plain_http import HttpError, PlainHttp, read_message

CONNECT_S = 5.0
INT32_MAX = 2**31 - 1
GRPC_OPTIONS = [
    # gRPC's own limit is 4 MB, less than many a photo.
    ("grpc.max_send_message_length", INT32_MAX),
    ("grpc.max_receive_message_length", INT32_MAX),
    # Unlike the HTTP clients gRPC would send even localhost through $http_proxy.
    ("grpc.enable_http_proxy", 0),
]


def load(protocol: Protocol) -> ModuleType:
    """The half of tritonclient in use; either takes 0.2 s to import."""
    try:
        return import_module(f"tritonclient.{protocol}")
    except ModuleNotFoundError as fault:
        what = "gRPC" if protocol == "grpc" else "more than synchronous classify over HTTP"
        raise NotInstalled(
            f"{what} needs {fault.name}, which is not installed",
            f"pip install './client[{protocol}]'",
        ) from None


def knock(server: Server) -> None:
    """Fail within seconds, and in the same words for every protocol, where nobody answers."""
    try:
        socket.create_connection((server.host, server.port), timeout=CONNECT_S).close()
    except OSError as exc:
        raise unreachable(server.url, exc) from exc


def over_http(home: Any, server: Server) -> Any:
    """tritonclient's asynchronous half."""
    from aiohttp import ClientOSError, ClientResponse, ServerDisconnectedError

    class Client(home.InferenceServerClient):  # type: ignore[misc]
        async def _post(self, **question: Any) -> ClientResponse:
            try:
                return await take(super()._post(**question))
            except (ClientOSError, ServerDisconnectedError):
                # Closed by the server while it was idle, which shows only when it is used. Asking a
                # classifier twice does no harm.
                return await take(super()._post(**question))

        async def _get(self, **question: Any) -> ClientResponse:
            return await take(super()._get(**question))

    async def take(coming: Awaitable[ClientResponse]) -> ClientResponse:
        """With what tritonclient drops of a refusal: when to ask again."""
        response = await coming
        if response.status != 200:
            message = read_message(await response.read())
            raise HttpError(message, str(response.status), response.headers.get("Retry-After"))
        return response

    # How many requests run at once is decided by the caller, not by the connector.
    return Client(
        server.url,
        conn_limit=0,
        conn_timeout=server.timeout,
        ssl=server.tls,
        ssl_context=make_tls_context(server),
    )


class UnderAName(ssl.SSLContext):
    """Expects a certificate of this name, whatever address is asked."""

    name: str | None = None

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*arguments, **self._add_name(options))

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*arguments, **self._add_name(options))

    def _add_name(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "server_hostname": self.name} if self.name else options


def make_tls_context(server: Server) -> ssl.SSLContext | None:
    """A context for TLS; None without. Trusts the certificates of the server's ca_file alone, or
    without one what this machine trusts."""
    if not server.tls:
        return None
    made = UnderAName(ssl.PROTOCOL_TLS_CLIENT)
    made.name = server.server_name
    if server.ca_file is None:
        made.load_default_certs()
        return made
    # A server's own certificate will do, too.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        made.load_verify_locations(server.ca_file)
    except OSError as exc:
        raise ServerUnreachable(
            f"{server.ca_file} holds no certificates ({exc.strerror or exc})", "name a PEM file"
        ) from exc
    return made


def trace_headers() -> dict[str, str]:
    """Of the span that the caller is in, if it uses OpenTelemetry; else of the trace that its
    environment names."""
    headers: dict[str, str] = {}
    if "opentelemetry" in sys.modules:
        import_module("opentelemetry.propagate").inject(headers)
    elif traceparent := os.environ.get("TRACEPARENT"):
        headers["traceparent"] = traceparent
    return headers


def make_headers(server: Server) -> dict[str, str]:
    """With each request: the key, and the trace that it belongs to."""
    key = {"authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    return {**key, **dict(server.headers), **trace_headers()}


def over_grpc(home: ModuleType, server: Server) -> Any:
    if server.ca_file:
        make_tls_context(server)  # which says what is wrong with the file
    options: list[tuple[str, Any]] = [*GRPC_OPTIONS]
    if server.server_name:
        options.append(("grpc.ssl_target_name_override", server.server_name))
    trusted = server.ca_file  # None: gRPC's own
    if not (trusted or os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH")):
        trusted = ssl.get_default_verify_paths().cafile
    return home.InferenceServerClient(
        server.url, ssl=server.tls, root_certificates=trusted, channel_args=options
    )


class Connection:
    """Four clients called alike; of an asynchronous one each call is awaited."""

    def __init__(self, server: Server, *, asynchronous: bool) -> None:
        self._protocol = server.protocol
        self._server = server
        self._timeout: dict[str, float] = {}
        self._as_json: dict[str, Any] = {}
        self._stub: Any
        home = import_module(".aio", self.tensors.__name__) if asynchronous else None
        if server.protocol == "grpc":
            self._stub = over_grpc(home or self.tensors, server)
            self._timeout = {"client_timeout": server.timeout}
            self._as_json = {"as_json": True}
        elif home:
            self._stub = over_http(home, server)
        else:
            self._stub = PlainHttp(server, make_tls_context(server))

    @property
    def _limits(self) -> dict[str, Any]:
        headers = make_headers(self._server)
        return {**self._timeout, **({"headers": headers} if headers else {})}

    @property
    def tensors(self) -> ModuleType:
        return load(self._protocol)

    def ask(self, form: Form, model: str, asked: Any, top: int = 0) -> Any:
        """`top`: so many labels."""
        if form.is_of_labels and isinstance(self._stub, PlainHttp):
            return self._stub.classify(model, asked, top, **self._limits)
        whole = question(self.tensors, form, model, asked, top)
        return self._stub.infer(**whole, **self._limits)

    def metadata(self) -> Any:
        """What the server says of itself, as a dict."""
        return self._stub.get_server_metadata(**self._as_json, **self._limits)

    def close(self) -> Any:
        return self._stub.close()
