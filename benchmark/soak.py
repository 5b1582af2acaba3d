"""Whether the server's memory grows: what its container takes while clients ask at full speed, up
to the first request that fails.

    .venv/bin/python -m benchmark.soak [--minutes 10] [--images photos]

Before it: make up FLAVOUR=cpu
"""

from __future__ import annotations

import argparse
import sys
import time

from benchmark.load import RAW, Question, measure
from bundle_serving.pictures import Transform
from scripts.base import console
from scripts.base.errors import UserError, guarded
from scripts.measuring import photos
from scripts.recipes import pipelines
from scripts.rollout import rollout
from scripts.stacks import flavour
from scripts.stacks.containers import DockerStack

CLIENTS = 4
BETWEEN_S = 30


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--images", default="", help="empty: drawn ones of 2 MB and of 60 kB")
    options = parser.parse_args(argv)
    up = rollout.found(pipelines.first())
    stack = flavour.stack(up.server.flavour, up.server.started_with)
    if not isinstance(stack, DockerStack):
        raise UserError("the server runs in no container", "make down && make up FLAVOUR=cpu")
    sent = photos.given_or_drawn(
        options.images, Transform(**up.version.workspace.manifest.transform)
    )
    rows = [row for each in sent for row in each.rows]
    path = f"/v2/models/{up.version.pipeline.ensemble}/infer"
    question = Question(str(up.server.http), path, RAW, rows)
    began, answered = time.monotonic(), 0
    while (passed := time.monotonic() - began) < 60 * options.minutes:
        tell(stack, passed, answered)
        answered += len(measure(question, CLIENTS, BETWEEN_S).latencies)
    tell(stack, passed, answered)
    return 0


def tell(stack: DockerStack, seconds: float, answered: int) -> None:
    if memory := stack.memory():
        console.note(f"{seconds:4.0f} s: {memory[0] / 2**20:.0f} MiB, {answered:,} answered")


if __name__ == "__main__":
    sys.exit(guarded(main))
