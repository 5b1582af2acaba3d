"""What the server tells of its own time: its processor time by process, which depends less than
throughput on what else the machine does, and how long each step worked."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping

from bundle_serving.address import Address
from scripts.base.errors import UserError

PROCESSES = re.compile(
    r'^bundle_process_cpu_seconds_total\{process="([^"]+)"\} (\S+)$', re.MULTILINE
)
STEPS = re.compile(
    r'^bundle_step_duration_seconds_sum\{model="([^"]+)",[^}]*\} (\S+)$', re.MULTILINE
)
TIMEOUT_S = 10


def fetch(metrics: Address | None) -> str:
    """Its metrics. Nothing of many servers, which have each their own."""
    if metrics is None:
        return ""
    request = urllib.request.Request(f"{metrics.url}/metrics")
    try:
        with metrics.open(request, TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError) as fault:
        raise UserError(f"{metrics} does not tell its metrics: {fault}", "see make logs") from None


def parse(metrics: str) -> dict[str, float]:
    """Seconds of the processor since each process began."""
    return {name: float(seconds) for name, seconds in PROCESSES.findall(metrics)}


def parse_steps(metrics: str) -> dict[str, float]:
    """Seconds that each step has worked, in all its versions."""
    found: dict[str, float] = {}
    for name, seconds in STEPS.findall(metrics):
        found[name] = found.get(name, 0.0) + float(seconds)
    return found


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
