"""What a server's door says that it answered."""

from __future__ import annotations

import json
import urllib.request
from contextlib import suppress

from bundle_serving.address import Address
from scripts.rollout.verdict import Seen


def read_counts(address: Address, pipeline: str) -> Seen:
    """In the last minute, to whoever asked this pipeline but us."""
    asked = urllib.request.Request(f"{address.url}/page/live.json")
    with suppress(OSError, ValueError), address.open(asked, timeout=5) as answer:
        of_it = [each for each in json.load(answer)["series"] if each["pipeline"] == pipeline]
        return sum((Seen(each["asked"], each["failed"]) for each in of_it), Seen(0, 0))
    return Seen(0, 0)
