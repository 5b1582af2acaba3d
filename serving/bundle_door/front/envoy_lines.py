"""What Envoy's access log says (envoy.py has it written): of each request over gRPC, which does not
pass the HTTP service, and of each that Envoy refuses by itself."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from bundle_door.served import CANDIDATE

GIVEN_UP = "http2.remote_reset", "downstream_remote_disconnect"
# Of JSON; or such as \200, which it knows not, and by which Envoy writes what is no UTF-8.
ESCAPE = re.compile(r"\\(?:([^0-7])|(?=[0-7]))")


class Line(msgspec.Struct):
    """What a client may choose is as long and as odd as it likes; null is what was not there."""

    port: str
    began: str  # seconds
    ended_ms: int
    status: int
    bytes_in: int
    bytes_out: int
    us: int | None = None  # to the end of the answer, if all of it was sent
    id: str | None = None
    client: str | None = None
    hurried: str | None = None  # the client that sent more than its rate
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
    def seconds(self) -> float:
        return self.ended_ms / 1e3 if self.us is None else self.us / 1e6

    @property
    def answered_by(self) -> str:
        return f"{self.model}{CANDIDATE}" if self.candidate else self.model or ""

    @property
    def is_given_up(self) -> bool:
        """By its client, before it had the answer."""
        return self.details in GIVEN_UP

    @property
    def by_envoy(self) -> str | None:
        """Why Envoy itself answered: no_such_route, ext_authz_denied, …"""
        return None if self.is_given_up or self.details == "via_upstream" else self.details


Listener = Callable[[Line], None]


async def read(envoy: asyncio.StreamReader, listeners: Sequence[Listener]) -> None:
    """Until it ends."""
    while text := await envoy.readline():
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            line = decode(text.decode(errors="replace"))
            for listener in listeners:
                listener(line)


def decode(text: str) -> Line:
    """A client must not hide by bytes that are no UTF-8, in a header that is told."""
    try:
        return msgspec.json.decode(text, type=Line)
    except msgspec.DecodeError:
        mended = ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", text)
        return msgspec.json.decode(mended, type=Line)
