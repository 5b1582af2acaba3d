"""Where a server is asked over HTTP, and what it wants to see there."""

import http.client
import json
import ssl
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from bundle_serving import CHECK_HEADER

# Of many servers behind one address. Of an answer: which gave it. Of a request: which is to get it.
SERVER_HEADER = "bundle-server"
# Of a stream: through which balancer it came, by a name that only it and the servers know.
BALANCER_HEADER = "bundle-balancer"
# And its streams, over HTTP.
BALANCED = "/v2/streams/"

PEM_END = "-----END CERTIFICATE-----\n"


@dataclass(frozen=True)
class Address:
    host: str
    port: int
    # Where it speaks TLS: the file of the certificate that it shows.
    certificate: Path | None = None
    api_key: str = field(default="", repr=False)
    # As SERVER_HEADER names it, where this one alone is meant.
    server: str = ""
    # By which its door knows a request of ours (own_requests.py).
    own_id: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Of host:port, with or without http:// before it."""
        parts = urlsplit(text if "://" in text else f"//{text}")
        return cls(parts.hostname or "127.0.0.1", parts.port or 8000)

    of = parse  # as kinds of users may still call it

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://{self}"

    @property
    def headers(self) -> dict[str, str]:
        key = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return key | self.server_header

    @property
    def server_header(self) -> dict[str, str]:
        """Of many servers, which one is meant."""
        return {SERVER_HEADER: self.server} if self.server else {}

    def is_of(self, headers: Message) -> bool:
        """Whether it is this one that answered so."""
        return not self.server or headers[SERVER_HEADER] == self.server

    @property
    def uncounted_headers(self) -> dict[str, str]:
        """The headers of a request that only looks after the server."""
        return {CHECK_HEADER: self.own_id} if self.own_id else {}

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """It sends the key with each request."""
        if self.certificate:
            return _Secured(self, timeout, trusting(self.certificate))
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def open(self, request: urllib.request.Request, timeout: float) -> Any:
        for name, value in self.headers.items():
            request.add_unredirected_header(name, value)
        context = trusting(self.certificate) if self.certificate else None
        # By no proxy of the environment, which would be asked for this machine as well.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        return opener.open(request, timeout=timeout)


class _Secured(http.client.HTTPSConnection):
    def __init__(self, address: Address, timeout: float, context: ssl.SSLContext) -> None:
        super().__init__(address.host, address.port, timeout=timeout, context=context)
        self._headers = address.headers

    def endheaders(self, *arguments: Any, **options: Any) -> None:
        for name, value in self._headers.items():
            self.putheader(name, value)
        super().endheaders(*arguments, **options)


def read_refusal(status: int, body: bytes) -> str:
    """What a server says when it refuses, in one line."""
    try:
        said = str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        said = f"HTTP {status}: {body.decode(errors='replace')}"
    return " ".join(said.split())[:400].rstrip("; ")


def trusting(certificate: Path) -> ssl.SSLContext:
    """Nothing but this very certificate, under whatever name it is met."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # Its issuers may stand behind it, whose other certificates are not meant.
    shown, end, _ = certificate.read_text().partition(PEM_END)
    context.load_verify_locations(cadata=shown + end)
    return context
