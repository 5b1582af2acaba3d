"""What the candidate of a rollout is asked: its share of every client's requests; and as a shadow,
copies of real requests after their answers have gone out. Nobody sees its answers to those, and no
request waits for it."""

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

from bundle_door.answers import Answer, Refused
from bundle_door.limits import Load
from bundle_door.paths.measured import Observer
from bundle_door.paths.routes import Handler
from bundle_door.requests import ANSWERED_BY, Note, Request, first_address_of, new_id
from bundle_door.served import Candidate, Served
from bundle_door.triton import OF_AN_UNKNOWN_MODEL
from bundle_door.watching.observed import HTTP
from bundle_door.watching.shadows import DIFFERS, FAILED, LEFT_OUT, SAME, Compared
from bundle_door.wire.over_http import translate_answer
from bundle_serving.process.server_log import log, log_traceback
from bundle_serving.protocol.gists import read_gist

# Who asks, where one client asks for many: they should each meet the same version again.
SESSION_ID = "x-session-id"
# With this, the live version is meant: of the page, which shows both side by side.
LIVE_ONLY = "x-live-only"
PARTS = 10_000
# A candidate has so many times as long as the slowest of the live version's last answers, and at
# least so long. One that takes longer is left alone for a while: nobody else is to wait for it.
SLOWER, LEAST_S, RESTS_S = 3, 1.0, 5.0
LAST_ANSWERS = 100
# A copy waits so long for a moment at which no request waits for a processor. One at a time is
# asked, and has so long.
WAITS_S, LOOK_S, ANSWER_S = 10.0, 0.02, 10.0
IDLE = len(os.sched_getaffinity(0))
MOST_WAITING, MOST_BYTES = 16, 32_000_000

Ask = Callable[[], Awaitable[Answer]]


@dataclass
class Sharing:
    """A handler: what is asked of a model may be answered by its candidate; if that fails, by the
    model."""

    handler: Handler
    observed: Observer
    served: Served
    shadowing: "Shadowing"
    protocol: str = HTTP

    def __post_init__(self) -> None:
        self._took: dict[str, deque[float]] = {}  # by the live models, while they have candidates
        self._rests_until: dict[Candidate, float] = {}

    async def __call__(self, request: Request, named: Mapping[str, str]) -> Answer:
        model = named["model"]
        if found := self.served.find_elsewhere(model):
            return await self._ask_elsewhere(*found, request, named)
        candidate = self.served.candidates.get(model)
        if candidate is None:
            return await self.handler(request, named)
        is_meant = request.is_own or named["version"] or LIVE_ONLY in request.headers
        rests = time.monotonic() < self._rests_until.get(candidate, 0.0)
        if is_meant or rests or not is_chosen(request, candidate):
            answer, took = await self._ask_live(model, request, named)
            if not is_meant and is_good(answer) and draw(request.note.id) < candidate.shadow:
                copy, path = ask_instead(candidate, request, named)
                copy.note = Note(new_id(), is_own=True)
                ask = partial(self.handler, copy, path)
                self.shadowing.offer(candidate, ask, answer, took, request)
            return answer
        began, is_late = time.monotonic(), False
        try:
            given = await self._ask_candidate(model, candidate, request, named)
        except Gone:
            return (await self._ask_live(model, request, named))[0]
        except TimeoutError:
            given, is_late = None, True
        if given:
            request.note.answered_by = candidate.model
            return replace(given, headers={**given.headers, ANSWERED_BY: candidate.version})
        took = time.monotonic() - began
        answer, of_live = await self._ask_live(model, request, named)
        # So that it was the candidate's fault: and not that of what takes either as long.
        if is_good(answer) and not (is_late and took < SLOWER * of_live):
            series = (candidate.model, candidate.version, self.protocol)
            self.observed.request(series, 500, took)
        return answer

    async def _ask_elsewhere(
        self, model: str, candidate: Candidate, request: Request, named: Mapping[str, str]
    ) -> Answer:
        """By its own name, as where it runs beside the live version."""
        asked, path = ask_instead(candidate, request, {**named, "model": model})
        request.note.answered_by = candidate.model
        return await self.handler(asked, path)

    async def _ask_live(
        self, model: str, request: Request, named: Mapping[str, str]
    ) -> tuple[Answer, float]:
        """And how long it took."""
        began = time.monotonic()
        answer = await self.handler(request, named)
        took = time.monotonic() - began
        self._took.setdefault(model, deque(maxlen=LAST_ANSWERS)).append(took)
        return answer, took

    async def _ask_candidate(
        self, model: str, candidate: Candidate, request: Request, named: Mapping[str, str]
    ) -> Answer | None:
        """None where it gives none; a `TimeoutError` where it does not in time."""
        asked, path = ask_instead(candidate, request, named)
        seconds = max(LEAST_S, SLOWER * max(self._took.get(model, [0.0])))
        try:
            return await ask_candidate(candidate, lambda: self.handler(asked, path), seconds)
        except TimeoutError:
            self._rests_until[candidate] = time.monotonic() + RESTS_S
            raise


def ask_instead(
    candidate: Candidate, request: Request, named: Mapping[str, str]
) -> tuple[Request, Mapping[str, str]]:
    """The same question to the candidate."""
    if candidate.servers:
        return replace(request, to=random.choice(candidate.servers)), named
    return replace(request), {**named, "model": candidate.model}


def is_chosen(request: Request, candidate: Candidate) -> bool:
    """Always the same for a session, else a key, else an address: behind a proxy or a balancer, the
    one that it names. For another version, others."""
    headers = request.headers
    who = headers.get(SESSION_ID) or request.note.client or first_address_of(headers)
    return draw(f"{candidate.model} {candidate.version} {who}") < candidate.share


def draw(text: str) -> float:
    """From 0 to 100, always the same for a text."""
    return crc32(text.encode()) % PARTS * 100 / PARTS


class Behind:
    """Work that begins when an answer has gone out, and that no request waits for: so much of it
    waits at once, and so many bytes of requests."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], int] = {}

    def begin(self, work: Coroutine[object, object, None], size: int) -> bool:
        """Whether there was room."""
        if len(self._tasks) >= MOST_WAITING or sum(self._tasks.values()) + size > MOST_BYTES:
            work.close()
            return False
        task = asyncio.create_task(work)
        self._tasks[task] = size
        task.add_done_callback(self._tasks.pop)
        return True


class Shadowing:
    def __init__(self, observed: Observer, load: Load) -> None:
        self._observed, self._load = observed, load
        self._turn = asyncio.Lock()
        self._behind = Behind()
        # Messages over gRPC that are being answered here, beside the load.
        self.singles = 0

    def offer(
        self,
        candidate: Candidate,
        ask: Ask,
        live: Answer,
        seconds: float,
        request: Request,
    ) -> None:
        """A request that was answered; it is asked again, unless the server is too busy."""
        gist = read_gist_of(live)
        if gist is None:
            return
        work = self._compare(candidate, ask, gist, seconds, request.note)
        request.note.is_copied = self._behind.begin(work, request.size)
        if not request.note.is_copied:
            left_out = Compared(candidate.model, candidate.version, LEFT_OUT)
            self._observed.note_comparison(left_out)

    async def _compare(
        self, candidate: Candidate, ask: Ask, live: tuple[str, float], seconds: float, note: Note
    ) -> None:
        try:
            told = await self._ask(candidate, ask, live, seconds, note.id)
            if told.outcome == DIFFERS and note.when_differs:
                note.when_differs()
            self._observed.note_comparison(told)
        finally:
            note.when_differs = None  # it has the request, which has the note

    async def _ask(
        self, candidate: Candidate, ask: Ask, live: tuple[str, float], seconds: float, id: str
    ) -> Compared:
        left_out = Compared(candidate.model, candidate.version, LEFT_OUT)
        overdue = time.monotonic() + WAITS_S
        async with self._turn:
            while self._load.requests + self.singles >= IDLE:
                if time.monotonic() > overdue:
                    return left_out
                await asyncio.sleep(LOOK_S)
            began = time.monotonic()
            try:
                answer = await ask_candidate(candidate, ask, ANSWER_S)
            except Gone:
                return left_out
            except TimeoutError:
                answer = None
        found = read_gist_of(answer) if answer else None
        times = seconds, time.monotonic() - began
        told = Compared(candidate.model, candidate.version, FAILED, id, live[0], seconds=times)
        if found:
            told.outcome = SAME if found[0] == live[0] else DIFFERS
            told.candidate, told.moved = found[0], abs(found[1] - live[1])
        return told


class Gone(Exception):
    """The candidate is not loaded any more, which the door has not heard yet."""


async def ask_candidate(candidate: Candidate, ask: Ask, seconds: float) -> Answer | None:
    """None where it gives no whole answer. A `TimeoutError`, or `Gone`, which is nobody's fault."""
    try:
        async with asyncio.timeout(seconds):
            answer = await ask()
    except Refused as refused:
        answer = refused.answer()
    except TimeoutError:
        raise
    except Exception as fault:  # of the door: the live version may be spared it
        log("door", f"an internal error with {candidate.model}, beside the live version")
        log_traceback(fault)
        return None
    if answer.status >= 400 and OF_AN_UNKNOWN_MODEL.encode() in answer.body:
        raise Gone
    return answer if is_good(answer) else None


def read_gist_of(answer: Answer) -> tuple[str, float] | None:
    told = translate_answer(answer)
    return read_gist(told.body, told.headers)


def is_good(answer: Answer) -> bool:
    return answer.status < 400 and answer.is_whole
