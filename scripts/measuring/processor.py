"""The server's processor time, by process. It depends less than throughput on what else the machine
does."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping

from bundle_serving.address import Address
from scripts.base.errors import UserError

METRIC = re.compile(r'^bundle_process_cpu_seconds_total\{process="([^"]+)"\} (\S+)$', re.MULTILINE)
TIMEOUT_S = 10


def fetch(metrics: Address | None) -> dict[str, float]:
    """Seconds since each process began. Nothing of a server without the door, as on a GPU."""
    if metrics is None:
        return {}
    request = urllib.request.Request(f"{metrics.url}/metrics")
    try:
        with metrics.open(request, TIMEOUT_S) as answer:
            return parse(answer.read().decode())
    except (OSError, ValueError) as fault:
        raise UserError(f"{metrics} does not tell its metrics: {fault}", "see make logs") from None


def parse(metrics: str) -> dict[str, float]:
    return {name: float(seconds) for name, seconds in METRIC.findall(metrics)}


def per_picture(
    before: Mapping[str, float], after: Mapping[str, float], pictures: int
) -> dict[str, float]:
    """Milliseconds; of a process that began anew meanwhile, what it has spent since."""
    if not pictures:
        return {}
    spent = {
        name: seconds - (before[name] if before.get(name, seconds + 1) <= seconds else 0.0)
        for name, seconds in after.items()
    }
    return {name: 1e3 * seconds / pictures for name, seconds in spent.items()}
