"""Starts the server: exports, checks and lays out what has changed, then serves it.

    make up [FLAVOUR=gpu|cpu|local] [ARCH=resnet50] [WEIGHTS=default|random|FILE] [PRECISION=auto]
    make up MODEL=birds     another pipeline, on the same server

A running server that fits is left alone.
"""

from __future__ import annotations

from scripts.recipes import pipelines
from scripts.server import up
from scripts.server.running import running_server
from scripts.settings.settings import Settings


def main() -> int:
    pipeline = pipelines.asked()
    if pipeline.first:
        up.bring_up(Settings.load())
    else:
        up.bring_up_beside(pipeline, running_server(up.of_the_server(pipeline)))
    return 0
