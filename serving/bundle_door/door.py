"""The door's first process and Envoy before it, from their start to their end;
http_process.py has the further ones, where there are several."""

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bundle_door.access.keys import Keys
from bundle_door.answers import Answer, Refused
from bundle_door.front import envoy, envoy_process, messages
from bundle_door.front.envoy_process import CONNECTIONS, REQUESTS
from bundle_door.given import Given
from bundle_door.http_process import HttpProcess, Told, keep_pages, tidy
from bundle_door.limits import Load
from bundle_door.paths import routes
from bundle_door.paths.measured import over_grpc
from bundle_door.paths.metrics import Metrics, find_resident_bytes
from bundle_door.paths.page_data import PageData
from bundle_door.requests import Request
from bundle_door.singles import Singles
from bundle_door.streams import Streams
from bundle_door.watching.drift import References
from bundle_door.watching.observed import HTTP, Observed
from bundle_door.watching.steps import Report, listen
from bundle_door.wire import http1
from bundle_serving.process import keeper_notes, relayed, sockets

# After SIGTERM: so long for load balancers to read it in /v2/health/ready, and at most so long for
# the requests in flight.
LEAVE_S = 1.0
DRAIN_S = 20.0
# Connections without a request end after a second; others may be slow on purpose.
CONNECTIONS_S = 3.0
# How often it looks; and of this process's own memory, besides bodies over HTTP: more is streams'
# messages.
LOOK_S, MOST_BYTES = 0.25, 512 << 20
# How often it looks whether Envoy listens.
LISTENS_S = 0.05


class DoorError(RuntimeError):
    """The door cannot be opened, or fell shut; the message says why and what to do."""


async def serve(given: Given) -> None:
    """Until SIGTERM; a `DoorError` when one of the two processes ends before."""
    envoy_process.raise_file_limit()
    keep_pages()
    stop = envoy_process.listen_for_stop()
    async with contextlib.AsyncExitStack() as stack:
        observed = Observed(References(given.state_folder, given.repository))
        key_file = given.exposure.api_keys
        keys = Keys(key_file, given.admin_key) if key_file else None
        process = HttpProcess(given, observed, keys)
        folder, served = process.folder, process.served
        observed.drift.is_there = served.is_there
        if keys:
            keys.find_most_rows = served.find_most_rows
        stack.push_async_callback(process.triton.close)
        if given.traces:
            # A second's import, where spans are wanted.
            from bundle_door.watching.spans import Spans

            spans = Spans(given.traces.collector)
            observed.on_report.append(spans.report)
            stack.callback(spans.close)
        reports = await listen(folder / sockets.STEPS, process.steps.take, Report)
        stack.callback(reports.close)
        streams = Streams(
            process.triton,
            folder / sockets.STREAMS,
            given.limits,
            keys,
            Singles(process, keys is not None).answer,
        )
        told = await listen(folder / sockets.TOLD, partial(take_told, observed, keys), Told)
        stack.callback(told.close)
        service = process.build_service(list_routes(process, observed, keys, streams, stop.is_set))
        await stack.enter_async_context(http1.server(service, folder / sockets.HTTP))
        await streams.start()
        stack.push_async_callback(streams.close)
        listeners = [process.log.of_envoy, over_grpc(observed, served)]
        if keys:
            listeners.append(keys.charge_line)
        relay = given.relay_folder
        messages.clear_room(given.processes, folder / sockets.ROOM)
        outside = await stack.enter_async_context(
            envoy_process.running(
                envoy.build_door(given, folder, relayed.prepare(relay) if relay else None),
                given.run_dir,
                partial(envoy_process.read_lines, listeners=listeners),
                given.processes,
            )
        )
        for work in (
            *([take_free_ports(relay)] if relay else []),
            tidy(process.load, keeps_log=True),
            served.learn(),
            take_singles(process),
            process.capturing.remove_old(),
            watch_memory(process.load, streams),
        ):
            stack.callback(asyncio.create_task(work).cancel)
        if await envoy_process.has_ended_before(stop, outside):
            raise DoorError("Envoy exited; its last lines are above")
        await drain(process, streams)


def list_routes(
    process: HttpProcess,
    observed: Observed,
    keys: Keys | None,
    streams: Streams,
    is_stopping: Callable[[], bool],
) -> list[routes.Route]:
    given, served = process.given, process.served

    async def live(request: Request, named: Mapping[str, str]) -> Answer:
        """Triton itself may not answer this while it waits for S3."""
        noted = keeper_notes.readiness(given.run_dir)
        lives = (noted and noted[0]) or (await process.triton.ask("ServerLive")).live
        return Answer(status=200 if lives else 503)

    async def ready(request: Request, named: Mapping[str, str]) -> Answer:
        if is_stopping():
            raise Refused(503, "the server is stopping")
        noted = keeper_notes.readiness(given.run_dir)
        if noted and not noted[0]:
            raise Refused(503, noted[1])
        is_ready = noted or (await process.triton.ask("ServerReady")).ready
        return Answer(status=200 if is_ready else 503)

    metrics = Metrics(given, observed, served, process.load, keys)
    return [
        *(routes.of_keys(keys) if keys else []),
        *routes.of_plain_questions(process.plain),
        *routes.of_triton(process.api),
        *routes.of_streams(streams),
        *routes.of_documents(given.repository),
        routes.open_to_all("/v2/health/live", GET=live),
        routes.open_to_all("/v2/health/ready", GET=ready),
        routes.open_to_all("/internal/metrics", GET=metrics.answer),
        *routes.of_observed(observed, served.look),
        *(routes.of_candidates(process.folder, served) if given.has_others else []),
        *PageData(given.run_dir, served, observed, process.load).routes(),
        *process.capturing.routes(),
    ]


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


async def drain(process: HttpProcess, streams: Streams) -> None:
    """Until no request is in flight; new ones are taken meanwhile, but on connections that end, and
    streams no more."""
    folder = process.folder
    await asyncio.sleep(LEAVE_S)
    with contextlib.suppress(OSError):
        async with asyncio.timeout(DRAIN_S):
            await envoy_process.drain(folder)
            await streams.drain()
            while process.load.requests or await envoy_process.count(folder, REQUESTS):
                await asyncio.sleep(0.05)
        # Somebody may just have connected, where a balancer has not heard yet that this door ends.
        async with asyncio.timeout(CONNECTIONS_S):
            await envoy_process.wait_until_none(folder, CONNECTIONS)


async def take_free_ports(relay: Path) -> None:
    """Those of the relay, where no other server has them: it hands them over when it is told to."""
    while not sockets.is_listening(relayed.folder(relay) / relayed.HTTP):
        await asyncio.sleep(LISTENS_S)
    if not relayed.is_held(relay):
        relayed.take(relay)


async def take_singles(process: HttpProcess) -> None:
    """While a model has a candidate, or requests are kept, single messages over gRPC come here."""
    share = 0
    while True:
        if (wanted := 100 * bool(process.capturing.keeps or process.served.candidates)) != share:
            with contextlib.suppress(OSError):
                if await envoy_process.set_runtime(process.folder, envoy.SHARING, wanted):
                    share = wanted
        await asyncio.sleep(LOOK_S)


async def watch_memory(load: Load, streams: Streams) -> None:
    """What gRPC holds of streams' messages, it does not tell."""
    libc = ctypes.CDLL(None)

    def is_full() -> bool:
        return find_resident_bytes(os.getpid()) - load.own_bytes > MOST_BYTES

    while True:
        await asyncio.sleep(LOOK_S)
        streams.end_late()
        with contextlib.suppress(OSError):  # too many files are open to look: the next time
            if streams.is_full():
                streams.end_some()
            elif streams.are_open() and is_full():
                libc.malloc_trim(0)
                if is_full():
                    streams.end_some()
