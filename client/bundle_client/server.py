"""A server's address, and how to ask there."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

# The main pipeline of a server that says no other by its name in KServe's metadata.
MODEL = "ensemble_python_resnet50"
UNNAMED = "triton"
TIMEOUT_S = 30.0
# The system counts milliseconds in 31 bits; of more, Python makes less.
LONGEST_S = 2_147_483
# How many pictures per concurrent request may be finished before the first one is yielded:
# one slow picture does not hold up the others, and memory stays bounded.
AHEAD = 8

Protocol = Literal["http", "grpc"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
PORTS: dict[Protocol, int] = {"http": 8000, "grpc": 8001}


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, how, and how long to wait."""

    protocol: Protocol
    host: str
    port: int
    timeout: float
    tls: bool = False
    # Whose certificates are trusted; None: those that this machine trusts.
    ca_file: str | None = None
    # In its certificate, where it is asked under another one.
    server_name: str | None = None
    api_key: str | None = field(default=None, repr=False)
    # Further ones, with each request.
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def server(
    url: str | None,
    protocol: Protocol,
    timeout: float,
    api_key: str | None = None,
    ca_file: str | None = None,
    server_name: str | None = None,
) -> Server:
    """Read an address: host or host:port, with or without http:// or grpc:// in front; encrypted
    with https:// or grpcs://, or where certificates are named."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    if not 0 < timeout <= LONGEST_S:
        raise ValueError(f"timeout must be more than 0 seconds, and at most {LONGEST_S}")
    api_key = (api_key or "").strip() or None  # a file of one ends with its line
    ca_file = ca_file or None  # a variable may be there, and empty
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("the API key has characters that no key has; copy it again")
    scheme, _, rest = (url or "localhost").rpartition("://")
    try:
        parts = urlsplit("//" + rest)
        host, port = parts.hostname, parts.port or PORTS[protocol]
        (host or "").encode("idna")  # as it is looked up
    except ValueError as exc:
        raise ValueError(f"address {url!r}: {exc}") from None
    encrypted = f"{protocol}s"
    if not host or scheme not in ("", protocol, encrypted) or parts.path.strip("/"):
        raise ValueError(f"address {url!r} is not host:port or {protocol}://host:port")
    tls = scheme == encrypted or (not scheme and ca_file is not None)
    return Server(protocol, host, port, timeout, tls, ca_file, server_name, api_key)


def main_model(metadata: Any) -> str:
    """Of a server, as KServe's ServerMetadata."""
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return str(name) if name not in ("", UNNAMED) else MODEL


def check_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1")
