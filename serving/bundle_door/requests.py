"""An HTTP request as the handlers see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    # Names in lower case.
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    # The decompressed body, in the pieces in which it arrived.
    chunks: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        return sum(map(len, self.chunks))

    @property
    def body(self) -> bytes:
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)
