"""How long requests for an answer took, by pipeline and outcome."""

import time
from collections.abc import Mapping
from typing import Protocol

import grpc

from bundle_door.answers import Answer, Refused
from bundle_door.front.envoy_process import Line, Listener
from bundle_door.front.messages import INFER
from bundle_door.paths.routes import Handler
from bundle_door.requests import Request
from bundle_door.served import Served
from bundle_door.triton import status_of
from bundle_door.watching.observed import GRPC, HTTP, Series
from bundle_door.watching.shadows import Compared
from bundle_door.watching.steps import Report

FOR_ITS_KEY = "ext_authz_denied"
# Of refusals that are the caller's fault.
BY_ENVOY: dict[tuple[str | None, grpc.StatusCode], int] = {
    (FOR_ITS_KEY, grpc.StatusCode.UNAVAILABLE): 429,
    ("request_payload_too_large", grpc.StatusCode.RESOURCE_EXHAUSTED): 413,
    ("max_duration_timeout", grpc.StatusCode.DEADLINE_EXCEEDED): 408,
    ("stream_idle_timeout", grpc.StatusCode.DEADLINE_EXCEEDED): 408,
    ("direct_response", grpc.StatusCode.UNIMPLEMENTED): 415,
}


class Observer(Protocol):
    def request(self, series: Series, status: int, seconds: float) -> None: ...

    def refusal(self, status: int, protocol: str) -> None: ...
    def note_comparison(self, compared: Compared) -> None: ...
    def note_capture(self, outcome: str) -> None: ...
    def report(self, report: Report) -> None: ...


def measure_handler(handler: Handler, observed: Observer, served: Served) -> Handler:
    """Of a client that hangs up there is nothing to say."""

    def took(request: Request, named: Mapping[str, str], status: int) -> None:
        if not request.is_own:
            model = request.note.answered_by or named["model"]
            pipeline, version = served.series(model)
            seconds = (time.monotonic_ns() - request.arrived) / 1e9
            make_counter(observed, served, model, HTTP, status, seconds)
            request.note.pipeline, request.note.version = pipeline, named["version"] or version

    async def observing(request: Request, named: Mapping[str, str]) -> Answer:
        served.refresh()
        try:
            answer = await handler(request, named)
        except Refused as refused:
            took(request, named, refused.status)
            raise
        except Exception:  # of the door, which tells it as 500
            took(request, named, 500)
            raise
        took(request, named, answer.status)
        return answer

    return observing


def make_counter(
    observed: Observer, served: Served, model: str, protocol: str, status: int, seconds: float
) -> None:
    def note_name(pipeline: str, version: str) -> None:
        observed.request((pipeline, version, protocol), status, seconds)

    served.name(model, status < 400, note_name)


def over_grpc(observed: Observer, served: Served) -> Listener:
    """The same of what does not pass the HTTP service, from Envoy's log."""

    def took(line: Line) -> None:
        code = grpc.StatusCode.__members__.get(line.grpc_status or "")
        if code is None:
            return
        # What the same refusal has over HTTP, where Envoy says more than gRPC's status does.
        status = BY_ENVOY.get((line.by_envoy, code)) or status_of(code)
        asks_model = line.path == INFER
        if asks_model:
            served.refresh()
            make_counter(observed, served, line.answered_by, GRPC, status, line.seconds)
        if status >= 400 and (asks_model or line.by_envoy == FOR_ITS_KEY):
            observed.refusal(status, GRPC)

    return took
