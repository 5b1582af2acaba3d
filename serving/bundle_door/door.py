"""The door's first process and Envoy before it, from their start to their end; worker.py is the
further ones, where there are several."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bundle_door.access.keys import Charges, Keys
from bundle_door.access.keys import metrics as metrics_of
from bundle_door.answers import Answer, Refused
from bundle_door.front import arrivals, envoy, envoy_lines, envoy_process
from bundle_door.limits import Counts, Limits, Load
from bundle_door.paths.api import Api
from bundle_door.paths.candidates import share_route
from bundle_door.paths.capturing import Capturing
from bundle_door.paths.measured import Observer, measure_route, over_grpc
from bundle_door.paths.metrics import Metrics, Room, find_resident_bytes
from bundle_door.paths.page_data import PageData
from bundle_door.paths.plain import PlainQuestions
from bundle_door.paths.routes import (
    Route,
    of_candidates,
    of_documents,
    of_drift,
    of_keys,
    of_plain_questions,
    of_shadows,
    of_streams,
    of_totals,
    of_triton,
    open_to_all,
)
from bundle_door.paths.shadowing import Shadowing
from bundle_door.paths.singles import Singles
from bundle_door.requests import Note, Request
from bundle_door.served import Served
from bundle_door.service import Service
from bundle_door.settings import NOTHING, TEXT, Keep
from bundle_door.streams import Streams
from bundle_door.triton import Triton
from bundle_door.watching import own_log
from bundle_door.watching.captures import Captures
from bundle_door.watching.drift import References
from bundle_door.watching.observed import HTTP, Observed
from bundle_door.watching.request_log import HUNG_UP, RequestLog
from bundle_door.watching.steps import Steps
from bundle_door.watching.told import Told, listen
from bundle_door.wire import http1
from bundle_door.wire.http1 import Incoming
from bundle_serving import own_requests
from bundle_serving.process import keeper_notes, relayed, sockets
from bundle_serving.process.exposure import Exposure

# After SIGTERM: so long for load balancers to read it in /v2/health/ready, and at most so long for
# the requests in flight.
LEAVE_S = 1.0
DRAIN_S = 20.0
# Connections without a request end after a second; others may be slow on purpose.
CONNECTIONS_S = 3.0
TIDY_S = 5
# How often it looks; and of this process's own memory, besides bodies over HTTP: more is streams'
# messages.
LOOK_S, MOST_BYTES = 0.25, 512 << 20
# How often it looks whether Envoy listens.
LISTENS_S = 0.05

# malloc.h: how much may lie free before it goes back, and what is mapped on its own.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


class DoorError(RuntimeError):
    """The door cannot be opened, or fell shut; the message says why and what to do."""


@dataclass(frozen=True)
class Settings:
    run_dir: Path
    address: str
    ports: envoy.Ports
    admin_key: str | None
    limits: Limits
    exposure: Exposure
    # Where the models lie, if that is a folder here.
    repository: Path | None = None
    log_format: str = TEXT
    traces: envoy.Traces | None = None
    # What outlives the run folder's container.
    state_folder: Path | None = None
    # Where a relay hands on what comes to its ports.
    relay_folder: Path | None = None
    # Of the HTTP service; and Envoy's threads.
    processes: int = 1
    # Which requests are kept, and where, if anywhere.
    keep: Keep = NOTHING
    captures: Captures | None = None
    # Whether it is one of several servers, of which some may have a candidate.
    has_others: bool = False

    @property
    def own_id(self) -> str:
        return own_requests.id_of(self.admin_key) if self.admin_key else ""

    def counts(self, number: int = 0) -> Counts:
        shared = sockets.folder(self.run_dir) / sockets.LOAD if self.processes > 1 else None
        return Counts(self.processes, number, shared)


async def serve(settings: Settings) -> None:
    """Until SIGTERM; a `DoorError` when one of the two processes ends before."""
    envoy_process.raise_file_limit()
    keep_pages()
    folder = sockets.folder(settings.run_dir)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        load = Load(settings.limits, settings.counts())
        triton = triton_of(settings, load.counts)
        stack.push_async_callback(triton.close)
        observed = Observed(
            References(settings.state_folder or settings.run_dir, settings.repository)
        )
        if settings.traces:
            from bundle_door.watching.spans import (
                Spans,  # a second's import, where spans are wanted
            )

            spans = Spans(settings.traces.collector)
            observed.on_report.append(spans.report)
            stack.callback(spans.close)
        steps = Steps(observed.report)
        reports = await steps.serve(folder / sockets.STEPS)
        stack.callback(reports.close)
        log = RequestLog(settings.log_format)
        served = Served(triton, settings.repository, folder if settings.has_others else None)
        keys = keys_of(settings)
        charges = Charges(keys, served) if keys else None
        capturing = capturing_of(settings, observed)
        shadowing = Shadowing(observed, load)
        singles = Singles(
            *(triton, load, observed, served, shadowing, capturing),
            keys is not None,
            settings.own_id,
        )
        streams = Streams(
            triton, folder / sockets.STREAMS, settings.limits, keys, charges, singles.answer
        )
        told = await listen(folder / sockets.TOLD, partial(take_told, observed, keys))
        stack.callback(told.close)
        service = service_of(
            *(settings, triton, folder, stop.is_set, observed, served, steps, log, keys, streams),
            *(load, capturing, shadowing),
        )
        await stack.enter_async_context(http1.server(service, folder / sockets.HTTP))
        await streams.start()
        stack.push_async_callback(streams.close)
        listeners = [log.of_envoy, over_grpc(observed, served)]
        if charges:
            listeners.append(charges.of_line)
        relay = settings.relay_folder
        arrivals.Room(settings.processes, folder / sockets.ROOM).clear()
        outside = await stack.enter_async_context(
            envoy_process.running(
                envoy.build_door(
                    settings.address,
                    settings.ports,
                    folder,
                    settings.limits,
                    settings.exposure,
                    settings.admin_key,
                    settings.run_dir / keeper_notes.COMING,
                    settings.traces,
                    relayed.prepare(relay) if relay else None,
                    settings.processes,
                    settings.has_others,
                ),
                settings.run_dir / "envoy.yaml",
                folder,
                partial(envoy_lines.read, listeners=listeners),
                settings.processes,
            )
        )
        if relay:
            stack.callback(asyncio.create_task(take_free_ports(relay)).cancel)
        stack.callback(asyncio.create_task(tidy(service)).cancel)
        stack.callback(asyncio.create_task(served.learn()).cancel)
        stack.callback(asyncio.create_task(take_singles(served, capturing, folder)).cancel)
        if capturing:
            stack.callback(asyncio.create_task(capturing.remove_old()).cancel)
        stack.callback(asyncio.create_task(watch_memory(service, streams)).cancel)
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait((outside, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            stopping.cancel()
            raise DoorError("Envoy exited; its last lines are above")
        await drain(service, streams, folder)


def service_of(
    settings: Settings,
    triton: Triton,
    folder: Path,
    stopping: Callable[[], bool],
    observed: Observed,
    served: Served,
    steps: Steps,
    log: RequestLog,
    keys: Keys | None,
    streams: Streams,
    load: Load,
    capturing: Capturing | None,
    shadowing: Shadowing,
) -> Service:
    api = Api(triton, settings.limits, steps, settings.own_id, keys)
    measures = Metrics(
        folder,
        observed,
        served,
        load,
        Room(settings.repository or settings.run_dir, settings.exposure.certificate),
        lambda: key_metrics(keys) + of_the_keeper(settings.run_dir),
    )

    async def live(request: Request, named: Mapping[str, str]) -> Answer:
        """Triton itself may not answer this while it waits for S3."""
        noted = keeper_notes.readiness(settings.run_dir)
        return Answer() if noted and noted[0] else await api.live(request, named)

    async def ready(request: Request, named: Mapping[str, str]) -> Answer:
        if stopping():
            raise Refused(503, "the server is stopping")
        noted = keeper_notes.readiness(settings.run_dir)
        if noted is None:
            return await api.ready(request, named)
        is_ready, why = noted
        if not is_ready:
            raise Refused(503, why)
        return Answer()

    async def metrics(request: Request, named: Mapping[str, str]) -> Answer:
        return await measures.answer(request)

    routes = [
        *(of_keys(keys) if keys else []),
        *of_plain_questions(PlainQuestions(triton, settings.limits, steps, keys)),
        *of_triton(api),
        *of_streams(streams),
        *of_documents(settings.repository),
        open_to_all("/v2/health/live", GET=live),
        open_to_all("/v2/health/ready", GET=ready),
        open_to_all("/internal/metrics", GET=metrics),
    ]
    observed.drift.is_there = served.is_there
    routes += [*of_drift(observed, served.look), *of_totals(observed.totals)]
    routes += of_shadows(observed)
    if settings.has_others:
        routes += of_candidates(folder, served, settings.limits)
    routes += PageData(settings.run_dir, served, observed, load, settings.limits).routes()
    routes += capturing.routes() if capturing else []

    return build_service(settings, routes, load, observed, served, log, capturing, shadowing)


def build_service(
    settings: Settings,
    routes: Sequence[Route],
    load: Load,
    observed: Observer,
    served: Served,
    log: RequestLog,
    capturing: Capturing | None,
    shadowing: Shadowing,
) -> Service:
    def note_answer(incoming: Incoming, note: Note, status: int, size: int, duration: int) -> None:
        method = incoming.method
        log.log_answer(method, incoming.path, note, status, duration, size)
        if status == HUNG_UP:
            return
        if status >= 400 and method == "POST" and not note.is_own:
            observed.refusal(status, HTTP)

    routes = [
        measure_route(share_route(route, observed, served, shadowing), observed, served)
        for route in routes
    ]
    return Service(
        [capturing.wrap(route) for route in routes] if capturing else routes,
        load,
        settings.admin_key,
        settings.exposure.origins,
        note_answer,
        keys=settings.exposure.api_keys is not None,
        own_id=settings.own_id,
    )


def triton_of(settings: Settings, counts: Counts) -> Triton:
    key = settings.admin_key if settings.exposure.api_keys else None
    return Triton(settings.run_dir, settings.limits.answer_s, counts, key or "")


def capturing_of(settings: Settings, observed: Observer) -> Capturing | None:
    captures = settings.captures
    return Capturing(settings.keep, captures, observed) if captures else None


def take_told(observed: Observed, keys: Keys | None, told: Told) -> None:
    """By a further process."""
    for request in told.requests:
        observed.request(*request)
    for status in told.refusals:
        observed.refusal(status, HTTP)
    for compared in told.compared:
        observed.note_comparison(compared)
    for outcome in told.captures:
        observed.note_capture(outcome)
    for client, more in told.charges:
        if keys:
            keys.charge(client, more)


def keys_of(settings: Settings) -> Keys | None:
    file = settings.exposure.api_keys
    return Keys(file, settings.admin_key) if file else None


def key_metrics(keys: Keys | None) -> bytes:
    return metrics_of(keys.requests).encode() if keys else b""


def of_the_keeper(run_dir: Path) -> bytes:
    """What it has restored, for Prometheus."""
    try:
        return (run_dir / keeper_notes.METRICS).read_bytes()
    except FileNotFoundError:
        return b""


async def drain(service: Service, streams: Streams, folder: Path) -> None:
    """Until no request is in flight; new ones are taken meanwhile, but on connections that end, and
    streams no more."""
    await asyncio.sleep(LEAVE_S)
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            await envoy_process.drain(folder)
            await streams.drain()
            while service.load.requests or await envoy_process.in_flight(folder):
                await asyncio.sleep(0.05)
        # Somebody may just have connected, where a balancer has not heard yet that this door ends.
        async with asyncio.timeout(CONNECTIONS_S):
            while await envoy_process.connections(folder):
                await asyncio.sleep(0.05)


async def take_free_ports(relay: Path) -> None:
    """Those of the relay, where no other server has them: it hands them over when it is told to."""
    while not relayed.is_listening(relayed.folder(relay) / relayed.HTTP):
        await asyncio.sleep(LISTENS_S)
    if not relayed.is_held(relay):
        relayed.take(relay)


def keep_pages() -> None:
    """Else each picture of 1 MB is read into new pages: 1.5 ms of processor time for them alone."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 4 << 20)
    libc.mallopt(M_TRIM_THRESHOLD, 32 << 20)


async def take_singles(served: Served, capturing: Capturing | None, folder: Path) -> None:
    """While a model has a candidate, or requests are kept, single messages over gRPC come here."""
    share, keeps = 0, capturing is not None and capturing.keeps
    while True:
        if (wanted := 100 * bool(keeps or served.candidates)) != share:
            with contextlib.suppress(OSError):
                if await envoy_process.set_runtime(folder, envoy.SHARING, wanted):
                    share = wanted
        await asyncio.sleep(LOOK_S)


async def watch_memory(service: Service, streams: Streams) -> None:
    """What gRPC holds of streams' messages, it does not tell."""
    libc = ctypes.CDLL(None)

    def is_full() -> bool:
        return find_resident_bytes(os.getpid()) - service.load.own_bytes > MOST_BYTES

    while True:
        await asyncio.sleep(LOOK_S)
        streams.end_late()
        if streams.is_full():
            streams.end_some()
        elif streams.are_open() and is_full():
            libc.malloc_trim(0)
            if is_full():
                streams.end_some()


async def tidy(service: Service) -> None:
    """Gives back what a burst took, once it is over; nobody is waited for in vain; and no log fills
    the disk."""
    libc = ctypes.CDLL(None)
    while True:
        await asyncio.sleep(TIDY_S)
        own_log.keep_short()
        service.load.drop_late()
        if not service.load.own_bytes:
            libc.malloc_trim(0)
