"""/metrics: Triton's, the keeper's, the door's and the steps', memory, disk and certificate; in
Prometheus' text format, or in OpenMetrics for those who ask."""

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from bundle_door.access.certificate import ends
from bundle_door.access.keys import Keys
from bundle_door.answers import Answer, Refused
from bundle_door.given import Given
from bundle_door.limits import Load
from bundle_door.requests import Request
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
from bundle_serving.process import keeper_notes, sockets
from bundle_serving.process.processes import TICKS_A_SECOND, Process, family, look_at
from bundle_serving.protocol import local_http

KEEPER = "bundle_keeper"
# How a version became the live one, or did not, as the history says it.
SWITCHES = "rollout", "rollback"
OUTCOMES = {"serves": "live", "stayed": "stayed"}
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CGROUPS = Path("/sys/fs/cgroup")
# Of version 2 and of version 1.
LIMIT, USED, CACHED = 0, 1, 2
OF_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
OF_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class Metrics:
    def __init__(
        self, given: Given, observed: Observed, served: Served, load: Load, keys: Keys | None
    ) -> None:
        self._run_dir, self._sockets = given.run_dir, sockets.folder(given.run_dir)
        self._observed, self._served, self._load, self._keys = observed, served, load, keys
        self._room = Room(given.repository or given.run_dir, given.exposure.certificate)

    async def answer(self, request: Request, named: Mapping[str, str]) -> Answer:
        # Asked anew: nothing that a client sent reaches the parser of Triton's metrics.
        try:
            of_triton = await local_http.ask(self._sockets / sockets.METRICS, "GET", "/metrics")
        except OSError:
            raise Refused(503, "Triton's metrics do not answer; is it starting?") from None
        self._served.refresh()
        families = [*self._of_keys(), *self._observed.families, *self._now()]
        body = of_triton.decode() + text(families)
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            body = as_openmetrics(body) + "# EOF\n"
            return Answer(body.encode(), headers={"content-type": OPENMETRICS})
        return Answer(body.encode(), headers={"content-type": PROMETHEUS})

    def _of_keys(self) -> list[Family]:
        if not self._keys:
            return []
        description = "Requests let in, by whose key they had"
        asked = Counter("door_requests_total", description, ("client",))
        asked.values = {(client,): count for client, count in self._keys.requests.items()}
        return [asked]

    def _now(self) -> list[Family]:
        in_flight = _gauge(
            "bundle_http_requests_in_flight",
            "Requests over HTTP being answered",
            max(0, self._load.requests - 1),  # without this one
        )
        held = _gauge("bundle_http_in_flight_bytes", "Bytes of their bodies", self._load.bytes)
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
        others = (*of_keeper(self._run_dir), *processes(), *self._room.families())
        return [in_flight, held, live, since, switches, *others]


def of_keeper(run_dir: Path) -> list[Family]:
    """Empty where none has noted anything."""
    if not (notes := keeper_notes.read(run_dir)):
        return []
    ready = _gauge("bundle_ready", "Whether requests are answered", int(notes.get("ready", 0)))
    restored = Counter("bundle_restored_total", "What the keeper restored", ("what",))
    for what in keeper_notes.RESTORED:
        restored.add(what, amount=notes.get("restored", {}).get(what, 0))
    description = "Models with fewer processes than they need"
    lacking = Gauge("bundle_model_lacks_process", description, ("model",))
    for model in notes.get("lacking", []):
        lacking.set(1, model)
    return [ready, restored, lacking]


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
    parent = look_at(os.getppid())
    is_kept = parent is not None and KEEPER in parent.arguments
    for process in family(os.getppid() if is_kept else os.getpid()):
        name = _role(process)
        with suppress(OSError, ValueError):  # ended meanwhile
            memory.add(name, amount=find_resident_bytes(process.pid))
            spent.add(name, amount=process.ticks / TICKS_A_SECOND)
    return memory, spent


def _role(process: Process) -> str:
    if process.instance:  # MODEL_0, by the number of its instance group
        return process.instance[0].rpartition("_")[0]
    for module in ("bundle_door", KEEPER):
        if module in process.arguments:
            return module.removeprefix("bundle_")
    return process.name


def find_resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


class Room:
    """What is left where the server runs: memory, disk, and the certificate's days."""

    def __init__(self, folder: Path, certificate: Path | None) -> None:
        self._folder = folder
        # A renewed one is shown after the next start alone.
        self._ends = ends(certificate) if certificate else None

    def families(self) -> list[Family]:
        used, limit = find_memory()
        gauges = [
            _gauge("bundle_memory_used_bytes", "Of the container, else of the machine", used),
            _gauge("bundle_memory_limit_bytes", "How much of it may be used", limit),
        ]
        with suppress(OSError):  # between two versions
            disk = os.statvfs(self._folder)
            block = disk.f_frsize
            gauges += [
                _gauge("bundle_disk_free_bytes", "Where the versions lie", disk.f_bavail * block),
                _gauge("bundle_disk_size_bytes", "Of that disk", disk.f_blocks * block),
            ]
        if self._ends is not None:
            name = "bundle_certificate_expires_timestamp_seconds"
            gauges.append(_gauge(name, "When the certificate of the ports ends", self._ends))
        return list(gauges)


def _gauge(name: str, description: str, value: float) -> Gauge:
    gauge = Gauge(name, description)
    gauge.set(value)
    return gauge


def find_memory(groups: Path = CGROUPS, proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes in use, without what the kernel can drop at once, and the limit: of the group with the
    smallest one, among those that this process is in, else the machine's."""
    machine = {
        name: 1024 * int(rest.split()[0])
        for name, _, rest in (
            line.partition(":") for line in (proc / "meminfo").read_text().splitlines()
        )
    }
    found = [(machine["MemTotal"], machine["MemTotal"] - machine["MemAvailable"])]
    for folder, names in _groups(groups, proc):
        with suppress(OSError, ValueError, StopIteration):
            limit = int((folder / names[LIMIT]).read_text())  # "max" is none
            used = int((folder / names[USED]).read_text())
            statistics = (folder / "memory.stat").read_text().splitlines()
            cached = next(line for line in statistics if line.startswith(f"{names[CACHED]} "))
            found.append((limit, used - int(cached.split()[1])))
    limit, used = min(found, key=lambda each: each[0])
    return used, limit


def _groups(groups: Path, proc: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Its own, and those around it: its user's, or a container's that has the machine's paths."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                own = groups / line.removeprefix("0::/")
                for folder in (own, *own.parents):
                    if folder.is_relative_to(groups):
                        yield folder, OF_VERSION_2
    yield groups / "memory", OF_VERSION_1
