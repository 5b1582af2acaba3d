"""Sends the candidate of a canary rollout its share of every client's requests."""

import random
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from zlib import crc32

from bundle_door.answers import Answer
from bundle_door.paths.measured import Observer
from bundle_door.paths.routes import Handler
from bundle_door.paths.shadowing import Gone, Shadowing, ask_candidate, is_good
from bundle_door.requests import ANSWERED_BY, Note, Request, first_address_of, new_id
from bundle_door.served import Candidate, Served
from bundle_door.watching.observed import HTTP

# Who asks, where one client asks for many: they should each meet the same version again.
SESSION_ID = "x-session-id"
# With this, the live version is meant: of the page, which shows both side by side.
LIVE_ONLY = "x-live-only"
PARTS = 10_000
# A candidate has so many times as long as the slowest of the live version's last answers, and at
# least so long. One that takes longer is left alone for a while: nobody else is to wait for it.
SLOWER, LEAST_S, RESTS_S = 3, 1.0, 5.0
LAST_ANSWERS = 100


@dataclass
class Sharing:
    """A handler: what is asked of a model may be answered by its candidate; if that fails, by the
    model."""

    handler: Handler
    observed: Observer
    served: Served
    shadowing: Shadowing
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
            if not is_meant and is_good(answer) and is_picked(request, candidate):
                self._copy(candidate, request, named, answer, took)
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

    def _copy(
        self,
        candidate: Candidate,
        request: Request,
        named: Mapping[str, str],
        answer: Answer,
        took: float,
    ) -> None:
        copy, path = ask_instead(candidate, request, named)
        copy.note = Note(new_id(), is_own=True)
        self.shadowing.offer(candidate, lambda: self.handler(copy, path), answer, took, request)

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


def is_picked(request: Request, candidate: Candidate) -> bool:
    """For a copy, whoever asks."""
    return draw(request.note.id) < candidate.shadow


def draw(text: str) -> float:
    """From 0 to 100, always the same for a text."""
    return crc32(text.encode()) % PARTS * 100 / PARTS
