"""A process of the HTTP service: what each has, where there are several; and what the further ones
are, and tell the first one. That one (door.py) has more."""

import asyncio
import ctypes
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from bundle_door.access.keys import Charged
from bundle_door.front import envoy_process
from bundle_door.front.messages import TRITON as GRPC_METHODS
from bundle_door.given import Given
from bundle_door.limits import Counts, Load
from bundle_door.paths.api import Api
from bundle_door.paths.candidates import Shadowing, Sharing
from bundle_door.paths.capturing import Capturing
from bundle_door.paths.measured import Observer, measure_handler
from bundle_door.paths.plain import PlainQuestions
from bundle_door.paths.routes import Handler, Route, of_inference, of_plain_questions
from bundle_door.requests import Note
from bundle_door.served import Served
from bundle_door.service import Service
from bundle_door.triton import Triton
from bundle_door.watching.captures import FOLDER, Captures
from bundle_door.watching.observed import HTTP, Series
from bundle_door.watching.request_log import HUNG_UP, RequestLog
from bundle_door.watching.shadows import Compared
from bundle_door.watching.steps import Report, Steps, listen
from bundle_door.wire import http1
from bundle_door.wire.http1 import Incoming
from bundle_serving import own_requests
from bundle_serving.process import sockets

TIDY_S = 5
# Of the log, where it is a file.
MOST_LOG_BYTES = 20_000_000
# The ends of paths, also where Envoy asks about their keys.
ASKS_A_MODEL = "/infer", "/classify", "/sentiment"
# malloc.h: how much may lie free before it goes back, and what is mapped on its own.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# What the further processes tell the first one goes together; and is kept while that is started
# again.
TELL_S, MOST_KEPT = 0.05, 3000

What = TypeVar("What")


class HttpProcess:
    def __init__(
        self, given: Given, observed: Observer, keys: Charged | None, number: int = 0
    ) -> None:
        self.given, self.observed = given, observed
        self.folder = sockets.folder(given.run_dir)
        shared = self.folder / sockets.LOAD if given.processes > 1 else None
        self.load = Load(given.limits, Counts(given.processes, number, shared))
        admin_key = given.admin_key or ""
        self.own_id = own_requests.id_of(admin_key) if admin_key else ""
        self.triton = Triton(
            given.run_dir,
            given.limits.answer_s,
            self.load.counts,
            admin_key if given.exposure.api_keys else "",
        )
        elsewhere = self.folder if given.has_others else None
        self.served = Served(self.triton, given.repository, elsewhere)
        self.steps = Steps(observed.report, number)
        self.api = Api(self.triton, self.steps, self.own_id, keys)
        self.plain = PlainQuestions(self.triton, self.steps, keys)
        self.log = RequestLog(given.log_format)
        folder = given.state_folder / FOLDER
        kept = Captures(folder, given.keep_bytes, given.keep_days, given.keep_for)
        self.capturing = Capturing(given.keep, kept, observed)
        self.shadowing = Shadowing(observed, self.load)

    def build_service(self, routes: Sequence[Route]) -> Service:
        return Service(
            [route.wrap(self._wrap) for route in routes],
            self.load,
            self.given.admin_key,
            self.given.exposure.origins,
            self._note_answer,
            keys=self.given.exposure.api_keys is not None,
            own_id=self.own_id,
        )

    def _wrap(self, handler: Handler) -> Handler:
        shared = Sharing(handler, self.observed, self.served, self.shadowing)
        return self.capturing.keep(measure_handler(shared, self.observed, self.served))

    def _note_answer(
        self, incoming: Incoming, note: Note, status: int, size: int, duration: int
    ) -> None:
        method = incoming.method
        self.log.log_answer(method, incoming.path, note, status, duration, size)
        # What Envoy asks about gRPC, and refuses then, its own log tells of.
        is_counted = method == "POST" and not note.is_own and GRPC_METHODS not in incoming.path
        if is_counted and status >= 400 and status != HUNG_UP:
            self.observed.refusal(status, HTTP)
            if not note.pipeline and incoming.path.endswith(ASKS_A_MODEL):  # before its handler
                self.observed.request((*self.served.series(""), HTTP), status, duration / 1e9)


class Told(msgspec.Struct):
    """By a further process to the first one, so that measures, drift and rates are of all of them,
    and outlive each."""

    # Series, status, seconds.
    requests: list[tuple[Series, int, float]] = []
    # Statuses.
    refusals: list[int] = []
    # What a client's request cost beyond the one that it was let in for.
    charges: list[tuple[str, int]] = []
    compared: list[Compared] = []
    # Outcomes.
    captures: list[str] = []


class Teller:
    """In a further process: takes the place of what the first one has."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._told = Told()

    def request(self, series: Series, status: int, seconds: float) -> None:
        self._add(self._told.requests, (series, status, seconds))

    def refusal(self, status: int, protocol: str = HTTP) -> None:
        self._add(self._told.refusals, status)

    def charge(self, client: str, more: int) -> None:
        self._add(self._told.charges, (client, more))

    def note_comparison(self, compared: Compared) -> None:
        self._add(self._told.compared, compared)

    def note_capture(self, outcome: str) -> None:
        self._add(self._told.captures, outcome)

    def report(self, report: Report) -> None:
        """The steps tell the first one, too."""

    def _add(self, told: list[What], one: What) -> None:
        if len(told) < MOST_KEPT:
            told.append(one)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            with suppress(OSError):
                await self._tell()

    async def _tell(self) -> None:
        _, writer = await asyncio.open_unix_connection(self._socket)
        try:
            while not writer.is_closing():
                if self._told != Told():
                    told, self._told = self._told, Told()
                    writer.write(msgspec.json.encode(told) + b"\n")
                    await writer.drain()
                await asyncio.sleep(TELL_S)
        finally:
            writer.close()


async def serve_further(given: Given, number: int) -> None:
    """Answers what asks a model, on a socket of its own, to which Envoy sends its share. All else
    is the first one's, which keeps what all have seen. The keeper starts it and ends it; it has no
    end of its own."""
    envoy_process.raise_file_limit()
    keep_pages()
    teller = Teller(sockets.folder(given.run_dir) / sockets.TOLD)
    charged = teller if given.exposure.api_keys else None
    process = HttpProcess(given, teller, charged, number)
    service = process.build_service(
        [*of_plain_questions(process.plain), *of_inference(process.api)]
    )
    steps, http = (sockets.of_process(name, number) for name in (sockets.STEPS, sockets.HTTP))
    reports = await listen(process.folder / steps, process.steps.take, Report)
    async with http1.server(service, process.folder / http), reports:
        await asyncio.gather(teller.run(), tidy(process.load), process.served.learn())


def keep_pages() -> None:
    """Else each picture of 1 MB is read into new pages: 1.5 ms of processor time for them alone."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 4 << 20)
    libc.mallopt(M_TRIM_THRESHOLD, 32 << 20)


async def tidy(load: Load, keeps_log: bool = False) -> None:
    """Gives back what a burst took, once it is over; nobody is waited for in vain; and, where one
    process does it for all, no log fills the disk."""
    libc = ctypes.CDLL(None)
    while True:
        await asyncio.sleep(TIDY_S)
        if keeps_log:
            keep_log_short()
        load.drop_late()
        if not load.own_bytes:
            libc.malloc_trim(0)


def keep_log_short(descriptor: int = 1, most: int = MOST_LOG_BYTES) -> None:
    """The log that this process and all others of its server write to, where it is a file: in a
    container Docker does that. What was written goes to FILE.1, instead of what was there. The file
    stays the same one, for all who append to it."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size <= most:
        return
    file = Path(f"/proc/self/fd/{descriptor}").readlink()
    try:
        shutil.copyfile(file, file.with_name(f"{file.name}.1"))
    except FileNotFoundError:
        pass  # somebody has removed it, and what is in it is nobody's to read
    except OSError:
        return  # the disk is full: the next time
    os.ftruncate(descriptor, 0)
