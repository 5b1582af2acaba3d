"""Sends the candidate of a canary rollout its share of every client's requests over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

from bundle_door.answers import Answer, Refused
from bundle_door.note import address_of
from bundle_door.paths.routes import Handler, Route
from bundle_door.requests import Request
from bundle_door.served import Candidate, Served

# Who asks, where one client asks for many: they should each meet the same version again.
SESSION_ID = "x-session-id"
# With this, the live version is meant: of the page, which shows both side by side.
LIVE_ONLY = "x-live-only"
# In the answer: the version that gave it, where that is the candidate.
ANSWERED_BY = "x-candidate-version"
PARTS = 10_000


def share_route(route: Route, served: Served) -> Route:
    """What is asked of a model may be answered by its candidate; if that fails, by the model."""
    asks = route.asks
    if asks is None:
        return route
    handlers = {
        method: share_requests(handler, asks, served) for method, handler in route.handlers.items()
    }
    return replace(route, handlers=handlers)


def share_requests(handler: Handler, asks: str, served: Served) -> Handler:
    async def sharing(request: Request, named: Mapping[str, str]) -> Answer:
        model = named["model"] or request.query.get("model", asks)
        candidate = served.candidates.get(model)
        is_meant = request.is_own or named["version"] or LIVE_ONLY in request.headers
        if candidate is None or is_meant or not is_chosen(request, candidate):
            return await handler(request, named)
        if named["model"]:
            asked, path = request, {**named, "model": candidate.model}
        else:
            asked = replace(request, query={**request.query, "model": candidate.model})
            path = dict(named)
        try:
            answer = await handler(asked, path)
        except Refused:
            return await handler(request, named)
        if answer.status >= 400:
            return await handler(request, named)
        return replace(answer, headers={**answer.headers, ANSWERED_BY: candidate.version})

    return sharing


def is_chosen(request: Request, candidate: Candidate) -> bool:
    """Always the same for a session, else a key, else an address; for another version, others."""
    headers = request.headers
    who = headers.get(SESSION_ID) or request.note.client or address_of(headers)
    part = crc32(f"{candidate.model} {candidate.version} {who}".encode()) % PARTS
    return part < candidate.share * PARTS / 100
