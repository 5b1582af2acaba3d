"""An HTTP request as the handlers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bundle_door.note import Note, is_sampled
from bundle_serving.process.traces import TRACEPARENT

# To Envoy (config/others.yaml): which server is meant.
TO = "x-to"


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


def find_twice(query: Sequence[tuple[str, str]]) -> str:
    seen = set[str]()
    for name, _ in query:
        if name in seen:
            return name
        seen.add(name)
    return ""
