"""What a server tells of its own time: where a request's goes, from Triton's counters before and
after a measurement; and, from its metrics, how long each step worked, and each process's time of
the processor, which depends less than throughput on what else the machine does."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bundle_serving.address import Address
from scripts.base.errors import UserError
from scripts.server.triton import triton_api

PROCESSES = re.compile(
    r'^bundle_process_cpu_seconds_total\{process="([^"]+)"\} (\S+)$', re.MULTILINE
)
STEPS = re.compile(
    r'^bundle_step_duration_seconds_sum\{model="([^"]+)",[^}]*\} (\S+)$', re.MULTILINE
)
TIMEOUT_S = 10


# Triton's counters of one model since its start, by our names; durations in nanoseconds.
Counters = Counter[str]
COUNTED = {
    "requests": ("success", "count"),
    "failed": ("fail", "count"),
    "total": ("success", "ns"),
    "queue": ("queue", "ns"),
    "input": ("compute_input", "ns"),
    "compute": ("compute_infer", "ns"),
    "output": ("compute_output", "ns"),
}


def parse_counters(statistics: dict[str, Any]) -> dict[str, Counters]:
    """What /v2/models/stats says."""
    found = {}
    for model in statistics["model_stats"]:
        counted = Counters(pictures=model["inference_count"], executions=model["execution_count"])
        for name, (part, what) in COUNTED.items():
            counted[name] = model["inference_stats"][part][what]
        found[model["name"]] = counted
    return found


def fetch_counters(servers: Mapping[str, Address]) -> dict[str, dict[str, Counters]]:
    return {
        name: parse_counters(triton_api.get(address, "/models/stats"))
        for name, address in servers.items()
    }


def subtract_counters(
    before: Mapping[str, Counters], after: Mapping[str, Counters]
) -> dict[str, Counters]:
    return {name: after[name] - before.get(name, Counters()) for name in after}


def add_counters(rounds: Iterable[Mapping[str, Counters]]) -> dict[str, Counters]:
    total: dict[str, Counters] = {}
    for counted in rounds:
        for name, counters in counted.items():
            total[name] = total.get(name, Counters()) + counters
    return total


def fetch_metrics(metrics: Address | None) -> str:
    """Its metrics. Nothing of many servers, which have each their own."""
    if metrics is None:
        return ""
    request = urllib.request.Request(f"{metrics.url}/metrics")
    try:
        with metrics.open(request, TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except (OSError, ValueError) as fault:
        raise UserError(f"{metrics} does not tell its metrics: {fault}", "see make logs") from None


def parse_processes(metrics: str) -> dict[str, float]:
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


@dataclass(frozen=True)
class Step:
    """One model's share, in milliseconds per request."""

    name: str
    queue: float
    input: float
    compute: float
    output: float
    batch: float  # average batch size

    @property
    def total(self) -> float:
        return self.queue + self.input + self.compute + self.output


@dataclass(frozen=True)
class Waterfall:
    """The average request's way through a server, in milliseconds."""

    client: float  # end to end, as the client saw it
    server: float  # inside the server
    steps: tuple[Step, ...]

    @property
    def wire(self) -> float:
        """Sending, receiving, and the client's own work."""
        return max(0.0, self.client - self.server)

    @property
    def overhead(self) -> float:
        """Passing a request from step to step."""
        return max(0.0, self.server - sum(step.total for step in self.steps))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"wire": self.wire, "overhead": self.overhead}


def make_waterfall(
    model: str, steps: Sequence[str], counted: Mapping[str, Counters], client: float
) -> Waterfall | None:
    """None if the server counted nothing. A step that only some requests take counts
    proportionally."""
    whole = counted.get(model, Counters())
    if not (requests := whole["requests"]):
        return None
    taken = [name for name in steps if counted[name]["requests"]]
    each = tuple(_step(name, counted[name], requests) for name in taken)
    return Waterfall(client, whole["total"] / requests / 1e6, each)


def divide(flow: Waterfall, parts: Mapping[str, float]) -> Waterfall:
    """With the parts that its one step does, by how long it worked as each of them. What it waits
    for is before the first of them, and its answer after the last."""
    worked = {name: seconds for name, seconds in parts.items() if seconds > 0}
    if len(flow.steps) != 1 or len(worked) < 2:
        return flow
    (whole,) = flow.steps
    first, *_, last = worked
    together = sum(worked.values())
    steps = tuple(
        Step(
            name,
            whole.queue if name == first else 0.0,
            whole.input if name == first else 0.0,
            whole.compute * seconds / together,
            whole.output if name == last else 0.0,
            whole.batch,
        )
        for name, seconds in worked.items()
    )
    return replace(flow, steps=steps)


def _step(name: str, counters: Counters, requests: int) -> Step:
    each = 1e6 * requests
    return Step(
        name,
        counters["queue"] / each,
        counters["input"] / each,
        counters["compute"] / each,
        counters["output"] / each,
        counters["pictures"] / max(1, counters["executions"]),
    )
