"""Asks a candidate copies of real requests after their answers have gone out: nobody sees its
answers, and no request waits for it."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine

from bundle_door.answers import Answer, Refused
from bundle_door.limits import Load
from bundle_door.paths.measured import Observer
from bundle_door.requests import Note, Request
from bundle_door.served import Candidate
from bundle_door.triton import OF_AN_UNKNOWN_MODEL
from bundle_door.watching.shadows import DIFFERS, FAILED, LEFT_OUT, SAME, Compared
from bundle_door.wire.over_http import translate_answer
from bundle_serving.process.server_log import log, log_traceback
from bundle_serving.protocol.gists import read_gist

# A copy waits so long for a moment at which no request waits for a processor. One at a time is
# asked, and has so long.
WAITS_S, LOOK_S, ANSWER_S = 10.0, 0.02, 10.0
IDLE = len(os.sched_getaffinity(0))
MOST_WAITING, MOST_BYTES = 16, 32_000_000

Ask = Callable[[], Awaitable[Answer]]


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
