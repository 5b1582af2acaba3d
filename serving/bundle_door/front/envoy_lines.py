"""What Envoy's access log says (envoy.py has it written): of each request over gRPC, which does not
pass the HTTP service, and of each that Envoy refuses by itself."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from bundle_door.served import CANDIDATE


class Line(msgspec.Struct):
    """What a client may choose is as long and as odd as it likes; null is what was not there."""

    port: str
    began: str  # seconds
    us: int
    status: int
    bytes_in: int
    bytes_out: int
    id: str | None = None
    client: str | None = None
    method: str | None = None
    path: str | None = None
    model: str | None = None
    version: str | None = None
    rows: float | None = None  # of its first input
    candidate: str | None = None  # the version of the candidate that answered
    grpc_status: str | None = None
    traceparent: str | None = None
    details: str | None = None

    @property
    def answered_by(self) -> str:
        return f"{self.model}{CANDIDATE}" if self.candidate else self.model or ""

    @property
    def by_envoy(self) -> str | None:
        """Why Envoy itself answered: no_such_route, ext_authz_denied, …"""
        return None if self.details == "via_upstream" else self.details


Listener = Callable[[Line], None]


async def read(envoy: asyncio.StreamReader, listeners: Sequence[Listener]) -> None:
    """Until it ends."""
    while text := await envoy.readline():
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            line = msgspec.json.decode(text, type=Line)
            for listener in listeners:
                listener(line)
