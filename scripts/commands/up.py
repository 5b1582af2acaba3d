"""Brings the server up: exports, proves and lays out what does not fit yet, then serves it.

    make up [FLAVOUR=gpu|cpu|local] [ARCH=resnet50] [WEIGHTS=default|random|FILE] [PRECISION=auto]
    make up MODEL=birds     another pipeline, into the same server

What is up and fits already is left alone.
"""

from __future__ import annotations

from scripts.recipes import pipelines
from scripts.server import up
from scripts.server.running import running_server
from scripts.settings import settings


def main() -> int:
    pipeline = pipelines.asked()
    if pipeline.first:
        up.bring_up(settings.load())
    else:
        up.bring_up_beside(pipeline, running_server(up.of_the_server(pipeline)))
    return 0
