"""A further process of the HTTP service: answers what asks a model, on a socket of its own, to
which Envoy sends its share. All else is the first one's (door.py), which keeps what all have seen.

The keeper starts it and ends it; it has no end of its own.
"""

from __future__ import annotations

import asyncio

from bundle_door.door import (
    Settings,
    build_service,
    capturing_of,
    keep_pages,
    tidy,
    triton_of,
)
from bundle_door.front import envoy_process
from bundle_door.limits import Load
from bundle_door.paths.api import Api
from bundle_door.paths.plain import PlainQuestions
from bundle_door.paths.routes import of_inference, of_plain_questions
from bundle_door.paths.shadowing import Shadowing
from bundle_door.served import Served
from bundle_door.watching.request_log import RequestLog
from bundle_door.watching.steps import Report, Steps
from bundle_door.watching.told import Teller
from bundle_door.wire import http1
from bundle_serving.process import sockets


def leave_to_the_first(report: Report) -> None:
    """Which gets each report."""


async def serve(settings: Settings, number: int) -> None:
    envoy_process.raise_file_limit()
    keep_pages()
    folder = sockets.folder(settings.run_dir)
    load = Load(settings.limits, settings.counts(number))
    triton = triton_of(settings, load.counts)
    served = Served(triton, settings.repository, folder if settings.has_others else None)
    teller = Teller(folder / sockets.TOLD)
    charged = teller if settings.exposure.api_keys else None
    steps = Steps(leave_to_the_first, number)
    routes = [
        *of_plain_questions(PlainQuestions(triton, settings.limits, steps, charged)),
        *of_inference(Api(triton, settings.limits, steps, settings.own_id, charged)),
    ]
    log = RequestLog(settings.log_format)
    capturing = capturing_of(settings, teller)
    shadowing = Shadowing(teller, load)
    service = build_service(settings, routes, load, teller, served, log, capturing, shadowing)
    reports = await steps.serve(folder / sockets.of_process(sockets.STEPS, number))
    own_socket = folder / sockets.of_process(sockets.HTTP, number)
    async with http1.server(service, own_socket), reports:
        await asyncio.gather(teller.run(), tidy(service), served.learn())
