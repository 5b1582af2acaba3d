"""How long requests for an answer took, by pipeline and outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from bundle_door.answers import Answer, Refused
from bundle_door.observed import Observed
from bundle_door.requests import Request
from bundle_door.routes import Handler, Route
from bundle_door.served import Served

HTTP = "http"


def measured(route: Route, observed: Observed, served: Served) -> Route:
    """The route, observed if it asks a model. Of a client that hangs up there is nothing to say."""
    if route.asks is None:
        return route
    handlers = {
        method: _observing(handler, route.asks, observed, served)
        for method, handler in route.handlers.items()
    }
    return replace(route, handlers=handlers)


def _observing(handler: Handler, asks: str, observed: Observed, served: Served) -> Handler:
    def took(request: Request, named: Mapping[str, str], status: int) -> None:
        if not request.of_the_keeper:
            model = named["model"] or request.query.get("model", asks)
            series = pipeline, version = served.series(model)
            seconds = (time.monotonic_ns() - request.arrived) / 1e9
            observed.request((*series, HTTP), status, seconds)
            request.note.pipeline, request.note.version = pipeline, named["version"] or version

    async def observing(request: Request, named: Mapping[str, str]) -> Answer:
        served.refresh()
        try:
            answer = await handler(request, named)
        except Refused as refused:
            took(request, named, refused.status)
            raise
        took(request, named, answer.status)
        return answer

    return observing
