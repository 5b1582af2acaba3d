"""Which handler answers which path, and which paths require the admin key."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from bundle_door import documents, elsewhere
from bundle_door.access.keys import Keys
from bundle_door.answers import Answer, Refused, as_json
from bundle_door.elsewhere import Elsewhere
from bundle_door.front.messages import HAVE_CLASSES, TOLD
from bundle_door.limits import MOST_NAME
from bundle_door.paths.api import Api
from bundle_door.paths.plain import PlainQuestions
from bundle_door.requests import Request
from bundle_door.served import Served
from bundle_door.streams import Streams
from bundle_door.watching.observed import Observed
from bundle_door.wire.kserve import parse
from bundle_serving.address import BALANCED
from bundle_serving.process.main_pipeline import find_main

Handler = Callable[[Request, Mapping[str, str]], Awaitable[Answer]]

MODEL = r"/v2/models/(?P<model>[^/]+)"
VERSIONED = MODEL + r"(?:/versions/(?P<version>[0-9]+))?"
REPOSITORY = r"/v2/repository"
MEMORY = r"/v2/(?P<memory>system|cuda)sharedmemory"
REGION = r"/region/(?P<region>[^/]+)"


# For a route that accepts every method.
ANY = "*"


@dataclass(frozen=True)
class Route:
    path: re.Pattern[str]
    handlers: Mapping[str, Handler]
    admin: bool = False
    # Where a model is asked: which, where neither the path nor the query names one.
    asks: str | None = None

    @property
    def light(self) -> bool:
        """Whether it is answered even under overload, because it has no body."""
        return "POST" not in self.handlers

    def name_parts(self, match: re.Match[str]) -> dict[str, str]:
        given = match.groupdict(default="")
        for what, name in given.items():
            if len(name) > MOST_NAME:
                raise Refused(
                    400, f"the {what} has {len(name)} characters; send {MOST_NAME} at most"
                )
        return {"model": "", "version": "", "region": "", **given}

    def wrap(self, wrapper: Callable[[Handler], Handler]) -> Route:
        """With other handlers, if it asks a model."""
        if self.asks is None:
            return self
        handlers = {name: wrapper(handler) for name, handler in self.handlers.items()}
        return replace(self, handlers=handlers)


def open_to_all(path: str, **handlers: Handler) -> Route:
    return Route(re.compile(path), handlers)


def asking(path: str, pipeline: str, handler: Handler) -> Route:
    return Route(re.compile(path), {"POST": handler}, asks=pipeline)


def for_the_admin(path: str, **handlers: Handler) -> Route:
    return Route(re.compile(path), handlers, admin=True)


def of_plain_questions(plain: PlainQuestions) -> list[Route]:
    return [
        asking("/classify", find_main(), plain.classify),
        asking("/sentiment", "sentiment_ensemble", plain.sentiment),
    ]


def of_keys(keys: Keys) -> list[Route]:
    """Envoy sends the method and path of the request to be authorised."""
    return [open_to_all("/internal/authorize.*", **{ANY: keys.authorize})]


def of_streams(streams: Streams) -> list[Route]:
    """The balancer's name, which nobody else knows, is its key."""
    arriving = f"{TOLD}(?P<stream>[0-9]+)/(?P<message>[0-9]+)/(?P<bytes>[0-9]+)"
    return [
        open_to_all(f"{BALANCED}(?P<balancer>[0-9a-f]+)", DELETE=streams.leave),
        open_to_all(arriving, GET=streams.arriving),
    ]


def of_observed(observed: Observed, look: Callable[[], Awaitable[None]]) -> list[Route]:
    async def drift(request: Request, named: Mapping[str, str]) -> Answer:
        if request.method == "POST":
            observed.drift.renew()
        await look()  # at what is loaded
        return as_json(observed.tell_drift())

    async def shadows(request: Request, named: Mapping[str, str]) -> Answer:
        if request.method == "POST":
            observed.shadows.clear()
        told = sorted(observed.shadows.items())
        return as_json([shadow.as_json(*candidate) for candidate, shadow in told])

    async def totals(request: Request, named: Mapping[str, str]) -> Answer:
        return as_json(observed.totals())

    return [
        for_the_admin("/v2/drift", GET=drift, POST=drift),
        for_the_admin("/v2/shadows", GET=shadows, POST=shadows),
        for_the_admin("/v2/answered", GET=totals),
    ]


def of_candidates(folder: Path, served: Served) -> list[Route]:
    async def tell(request: Request, named: Mapping[str, str]) -> Answer:
        told = parse(request.body, Elsewhere)
        elsewhere.note(folder, told)
        await served.look_anew()
        return as_json({})

    return [for_the_admin("/v2/candidates", POST=tell)]


def of_documents(repository: Path | None) -> list[Route]:
    def show(page: Answer) -> Handler:
        async def handler(request: Request, named: Mapping[str, str]) -> Answer:
            return unless_had(request, documents.add_cards(page, repository))

        return handler

    async def show_own_card(request: Request, named: Mapping[str, str]) -> Answer:
        path = documents.find_own_cards(repository).get(documents.ADDITIONS + named["card"])
        with suppress(FileNotFoundError):  # its version went just now
            if path:
                return unless_had(request, documents.file(path))
        raise Refused(404, "there is no such card")

    shown = documents.documents().items()
    return [
        *(open_to_all(re.escape(path), GET=show(page)) for path, page in shown),
        open_to_all(f"{documents.ADDITIONS}(?P<card>[^/]+)", GET=show_own_card),
    ]


def unless_had(request: Request, answer: Answer) -> Answer:
    """Not sent again to a browser that has it."""
    tag = answer.headers.get("etag")
    had = tag and request.headers.get("if-none-match") == tag
    return Answer(status=304, headers=answer.headers) if had else answer


def of_inference(api: Api) -> list[Route]:
    return [asking(VERSIONED + "/infer", "", api.infer)]


def of_triton(api: Api) -> list[Route]:
    return [
        *of_inference(api),
        open_to_all(HAVE_CLASSES, GET=api.classes),
        open_to_all("/v2", GET=api.server),
        open_to_all("/v2/models/stats", GET=api.statistics),
        open_to_all(VERSIONED, GET=api.model),
        open_to_all(VERSIONED + "/ready", GET=api.model_ready),
        open_to_all(VERSIONED + "/config", GET=api.config),
        open_to_all(VERSIONED + "/stats", GET=api.statistics),
        for_the_admin(MODEL + "/trace/setting", GET=api.trace, POST=api.trace),
        for_the_admin("/v2/trace/setting", GET=api.trace, POST=api.trace),
        for_the_admin("/v2/logging", GET=api.logging, POST=api.logging),
        for_the_admin(REPOSITORY + "/index", POST=api.index),
        for_the_admin(REPOSITORY + "/models/(?P<model>[^/]+)/load", POST=api.load),
        for_the_admin(REPOSITORY + "/models/(?P<model>[^/]+)/unload", POST=api.unload),
        for_the_admin(f"{MEMORY}(?:{REGION})?/status", GET=api.regions),
        for_the_admin(f"{MEMORY}{REGION}/register", POST=api.register),
        for_the_admin(f"{MEMORY}(?:{REGION})?/unregister", POST=api.unregister),
    ]


def find_route(
    routes: list[Route], method: str, path: str
) -> tuple[Route, Handler, dict[str, str]]:
    """HEAD is answered as GET; http1.py leaves the body out."""
    asked = "GET" if method == "HEAD" else method
    for route in routes:
        if match := route.path.fullmatch(path):
            if handler := route.handlers.get(asked) or route.handlers.get(ANY):
                return route, handler, route.name_parts(match)
            head = ["HEAD"] if "GET" in route.handlers else []
            allowed = {"allow": ", ".join([*route.handlers, *head])}
            raise Refused(405, "Method Not Allowed", allowed)
    raise Refused(404, "Not Found")
