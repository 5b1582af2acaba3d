"""An HTTP request as the handlers see it, and what is found out about it while it is answered."""

import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bundle_door.limits import MOST_ID
from bundle_serving import CHECK_HEADER
from bundle_serving.process.traces import TRACEPARENT

# From Envoy: whose API key it was.
CLIENT_HEADER = "x-client"
REQUEST_ID = "x-request-id"
# In an answer: the version that gave it, where that is the candidate.
ANSWERED_BY = "x-candidate-version"
SANE_ID = re.compile(rf"[\w.:@/+=-]{{1,{MOST_ID}}}", re.ASCII)
TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# To Envoy (front/config/door.yaml): which server is meant.
TO = "x-to"


@dataclass
class Note:
    """For the request log."""

    id: str
    trace: str = ""
    client: str = ""
    pipeline: str = ""
    version: str = ""
    bytes_in: int = 0
    # Milliseconds: until all of the request was here, in each step, and between them.
    received_ms: float | None = None
    waited_ms: float | None = None
    steps: dict[str, float] = field(default_factory=dict)
    # Of us (bundle_serving.own_requests).
    is_own: bool = False
    # Another model than the one that was asked.
    answered_by: str = ""
    # Rows or pictures beyond the first that its key was charged for.
    charged: int = 0
    # Whether a shadow is to answer it, too; and what is called if that answers otherwise.
    is_copied: bool = False
    when_differs: Callable[[], object] | None = None


@dataclass(slots=True)
class Request:
    method: str
    path: str
    # Names in lower case.
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    # The decompressed body, in the pieces in which it arrived.
    chunks: Sequence[bytes] = ()
    # When its headers were here, and when all of it was: of the monotonic clock, in ns.
    arrived: int = 0
    complete: int = 0
    # For the log.
    note: Note = field(default_factory=lambda: Note(""))
    # A name that is in the query more than once, if any is; `query` has the last one.
    twice: str = ""
    # Another server that is to answer it, as host:port of its gRPC.
    to: str = ""

    @property
    def is_own(self) -> bool:
        """A request of ours (bundle_serving.own_requests)."""
        return self.note.is_own

    @property
    def may_be_repeated(self) -> bool:
        """Whether an earlier answer to the same question will do."""
        return "no-cache" not in self.headers.get("cache-control", "").lower()

    @property
    def onwards(self) -> dict[str, str]:
        """What Triton is to be handed as it came; and which one, if it is not the one here."""
        given, to = self.headers.get(TRACEPARENT, ""), {TO: self.to} if self.to else {}
        return {TRACEPARENT: given, **to} if self.note.trace and is_sampled(given) else to

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks))

    @property
    def body(self) -> bytes:
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)


def sane_id(given: str) -> str:
    """The client's own, else a new one."""
    return given if SANE_ID.fullmatch(given) else new_id()


def new_id() -> str:
    """A random UUID (version 4), in half of the time that uuid.uuid4 takes for its text."""
    digits = secrets.token_hex(16)
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def trace_id(traceparent: str) -> str:
    """Empty where there is none that is valid (w3.org/TR/trace-context)."""
    found = TRACE.fullmatch(traceparent)
    return found[1] if found else ""


def is_sampled(traceparent: str) -> bool:
    """Whether a trace of it is wanted: the last bit of a valid one."""
    return traceparent[-1:] in tuple("13579bdf")


def address_of(headers: Mapping[str, str]) -> str:
    """As Envoy saw it."""
    return headers.get("x-forwarded-for", "").rpartition(",")[2].strip()


def first_address_of(headers: Mapping[str, str]) -> str:
    """Of a client behind others, as these say, or it says itself."""
    return headers.get("x-forwarded-for", "").partition(",")[0].strip()


def note_of(headers: Mapping[str, str], keys: bool, own_id: str = "") -> Note:
    """Without keys anyone could call himself anything."""
    checked = headers.get(CHECK_HEADER, "")
    return Note(
        sane_id(headers.get(REQUEST_ID, "")),
        trace_id(headers.get(TRACEPARENT, "")),
        headers.get(CLIENT_HEADER, "") if keys else "",
        is_own=bool(own_id) and hmac.compare_digest(checked.encode(), own_id.encode()),
    )
