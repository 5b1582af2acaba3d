"""What a server's door says that it answered."""

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bundle_serving.address import Address
from scripts.rollout.verdict import Seen

# How often a canary's clients are looked at.
LOOK_S = 1.0


def read_counts(address: Address, pipeline: str, version: int | None = None) -> Seen:
    """In the last minute, to all clients of this pipeline but us; of one version, or of all."""
    asked = urllib.request.Request(f"{address.url}/page/live.json")
    with suppress(OSError, ValueError), address.open(asked, timeout=5) as answer:
        of_it = [
            each
            for each in json.load(answer)["series"]
            if each["pipeline"] == pipeline and version in (None, int(each["version"] or 0))
        ]
        return sum((Seen(each["asked"], each["failed"]) for each in of_it), Seen(0, 0))
    return Seen(0, 0)


@dataclass
class Clients:
    """Those of a canary's requests that the candidate should have answered."""

    find_addresses: Callable[[], Sequence[Address]]  # of the live servers
    pipeline: str
    candidate: str
    version: int
    # Failures of an earlier try of the version, as long as the minute has them.
    _earlier: int = field(init=False)
    looked: float = field(default=0.0, init=False)
    _objection: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._earlier = self._read().failed

    def find_objection(self) -> str | None:
        if self._objection is None and time.monotonic() > self.looked + LOOK_S:
            seen = self._read()
            self._earlier = min(self._earlier, seen.failed)
            failed = seen.failed - self._earlier
            live = self._sum(self.pipeline)
            self._objection = Seen(max(seen.asked, failed), failed).objection(live)
            self.looked = time.monotonic()
        return self._objection

    def _read(self) -> Seen:
        return self._sum(self.candidate, self.version)

    def _sum(self, pipeline: str, version: int | None = None) -> Seen:
        found = (read_counts(each, pipeline, version) for each in self.find_addresses())
        return sum(found, Seen(0, 0))
