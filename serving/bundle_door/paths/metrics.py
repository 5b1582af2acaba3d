"""/metrics: Triton's, the keeper's, the door's and the steps', memory, disk and certificate; in
Prometheus' text format, or in OpenMetrics for those who ask."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from bundle_door.answers import Answer, Refused
from bundle_door.limits import Load
from bundle_door.requests import Request
from bundle_door.room import Room
from bundle_door.served import Served, live_version
from bundle_door.watching.measures import (
    OPENMETRICS,
    PROMETHEUS,
    Counter,
    Family,
    Gauge,
    as_openmetrics,
    text,
)
from bundle_door.watching.observed import Observed
from bundle_serving.process import sockets
from bundle_serving.process.processes import TICKS_A_SECOND, Process, family
from bundle_serving.protocol import local_http

KEEPER = "bundle_keeper"
# How a version became the live one, or did not, as the history says it.
SWITCHES = "rollout", "rollback"
OUTCOMES = {"serves": "live", "stayed": "stayed"}
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Metrics:
    def __init__(
        self,
        folder: Path,
        observed: Observed,
        served: Served,
        load: Load,
        room: Room,
        others: Callable[[], bytes],
    ) -> None:
        self._folder = folder
        self._observed = observed
        self._served = served
        self._load = load
        self._room = room
        self._others = others

    async def answer(self, request: Request) -> Answer:
        # Asked anew: nothing that a client sent reaches the parser of Triton's metrics.
        try:
            of_triton = await local_http.ask(self._folder / sockets.METRICS, "GET", "/metrics")
        except (OSError, TimeoutError):
            raise Refused(503, "Triton's metrics do not answer; is it starting?") from None
        self._served.refresh()
        families = [*self._observed.families, *self._now()]
        others = (of_triton + self._others()).decode()
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            body = as_openmetrics(others) + text(families, openmetrics=True) + "# EOF\n"
            return Answer(body.encode(), headers={"content-type": OPENMETRICS})
        return Answer((others + text(families)).encode(), headers={"content-type": PROMETHEUS})

    def _now(self) -> list[Family]:
        in_flight = Gauge("bundle_http_requests_in_flight", "Requests over HTTP being answered")
        in_flight.set(max(0, self._load.requests - 1))  # without this one
        held = Gauge("bundle_http_in_flight_bytes", "Bytes of their bodies")
        held.set(self._load.bytes)
        live = Gauge("bundle_live_version", "Each pipeline's live version", ("pipeline",))
        since = Gauge(
            "bundle_live_since_timestamp_seconds", "When it became the live one", ("pipeline",)
        )
        switches = Counter(
            "bundle_rollouts_total", "Switches between versions", ("pipeline", "how", "outcome")
        )
        for pipeline, events in self._served.history().items():
            for how, outcome in itertools.product(SWITCHES, OUTCOMES.values()):
                switches.add(pipeline, how, outcome, amount=0)  # else no first one is seen
            for event in events:
                if event["how"] in SWITCHES and event["what"] in OUTCOMES:
                    switches.add(pipeline, event["how"], OUTCOMES[event["what"]])
            if version := live_version(pipeline, events):
                live.set(int(version), pipeline)
            if at := [event["time"] for event in events if event["what"] == "serves"]:
                since.set(datetime.fromisoformat(at[-1]).timestamp(), pipeline)
        return [in_flight, held, live, since, switches, *processes(), *self._room.families()]


def processes() -> tuple[Gauge, Counter]:
    """Memory and processor time of all processes of this server; those of one model are one."""
    memory = Gauge(
        "bundle_process_resident_memory_bytes",
        "Resident memory, with what is shared",
        ("process",),
    )
    spent = Counter(
        "bundle_process_cpu_seconds_total", "Processor time of what now runs", ("process",)
    )
    parent = os.getppid()
    is_keeper = KEEPER in _command(parent)
    for process in family(parent if is_keeper else os.getpid()):
        name = _role(process)
        with suppress(OSError, ValueError):  # ended meanwhile
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            memory.add(name, amount=pages * PAGE_BYTES)
            spent.add(name, amount=process.ticks / TICKS_A_SECOND)
    return memory, spent


def _role(process: Process) -> str:
    if process.instance:  # MODEL_0, by the number of its instance group
        return process.instance[0].rpartition("_")[0]
    for module in ("bundle_door", KEEPER):
        if module in process.arguments:
            return module.removeprefix("bundle_")
    return process.name


def _command(pid: int) -> tuple[str, ...]:
    try:
        return tuple(Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
    except OSError:
        return ()
