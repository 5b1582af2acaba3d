"""What Envoy has counted of ModelInfer over gRPC, which does not pass the HTTP service. It reads no
messages, so neither pipeline nor version is known; and it measures in whole milliseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bundle_door import local_http
from bundle_door.measures import SECONDS

ASKED = "/stats/prometheus?filter=ModelInfer"
NAME = "^envoy_cluster_grpc_ModelInfer_"
BUCKET = re.compile(NAME + r'upstream_rq_time_bucket\{.*le="[^"]+"\} (\d+)$')
SUM = re.compile(NAME + r"upstream_rq_time_sum\{.*\} (\S+)$")
STATUS = re.compile(NAME + r"(\d+)\{.*\} (\d+)$")

# gRPC's codes.
CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
    "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
    "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """Since Envoy's start."""

    # Not cumulative; as in a Histogram.
    counts: Sequence[int]
    seconds: float
    by_code: dict[str, int]

    @classmethod
    def none(cls) -> Counted:
        return cls([0] * (len(SECONDS) + 1), 0.0, {})

    def since(self, before: Counted) -> tuple[list[int], int]:
        """Requests as in a histogram, and how many of them failed."""
        counts = [now - then for then, now in zip(before.counts, self.counts, strict=True)]
        return counts, self.failed - before.failed

    @property
    def failed(self) -> int:
        return sum(count for code, count in self.by_code.items() if code != CODES[0])


async def counted(socket: Path) -> Counted:
    """Raises OSError or TimeoutError if Envoy does not answer."""
    return parsed((await local_http.ask(socket, "GET", ASKED)).decode())


def parsed(text: str) -> Counted:
    up_to: list[int] = []
    seconds, by_code = 0.0, dict[str, int]()
    for line in text.splitlines():
        if found := BUCKET.match(line):
            up_to.append(int(found[1]))
        elif found := SUM.match(line):
            seconds = float(found[1]) / 1000
        elif (found := STATUS.match(line)) and int(found[1]) < len(CODES):
            by_code[CODES[int(found[1])]] = int(found[2])
    if len(up_to) != len(SECONDS) + 1:
        up_to = [0] * (len(SECONDS) + 1)
    counts = [now - before for before, now in zip([0, *up_to], up_to, strict=False)]
    return Counted(counts, seconds, by_code)
