"""Rollout after rollout while clients ask without a pause: is a request ever lost?

    python -m benchmark.rollouts [--times 10] [--clients 8]

Publishes versions of what is up (two precisions, two ways to decode) and switches from one to the
next, over and over, whichever is faster; half of the clients ask over gRPC. Prints what became of
their requests, and goes back to the version that served at first.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bundle_client import Client
from scripts.artefacts.picture import mug
from scripts.base import console
from scripts.base.errors import AlreadyReported, run_guarded
from scripts.base.paths import PYTHON, ROOT
from scripts.recipes import pipelines
from scripts.repository import archive, history
from scripts.rollout import rollout


@dataclass
class Load:
    answered: int = 0
    faults: list[str] = field(default_factory=list)


@contextmanager
def clients(http: str, grpc: str, count: int, pause: float = 0, **how: Any) -> Iterator[Load]:
    """As many as that, each with its next request once it has the answer to the last; or so many
    seconds later. `how` each asks: its API key, and whose certificate it trusts."""
    drawing = io.BytesIO()
    mug().save(drawing, "JPEG")
    load, stop = Load(), threading.Event()

    def ask(protocol: str, url: str) -> None:
        with Client(url=url, protocol=protocol, **how) as client:  # type: ignore[arg-type]
            while not stop.wait(pause):
                try:
                    client.classify(drawing.getvalue(), top=1)
                    load.answered += 1
                except Exception as fault:
                    load.faults.append(str(fault))

    pairs = itertools.islice(itertools.cycle((("http", http), ("grpc", grpc))), count)
    threads = [threading.Thread(target=ask, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def command(name: str, **settings: str) -> None:
    done = subprocess.run(
        [str(PYTHON), "-m", "scripts.commands", f"versions.{name}"],
        cwd=ROOT,
        env=os.environ | {"MAX_P99_RATIO": "100"} | settings,
    )
    if done.returncode:
        raise AlreadyReported(done.returncode)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args(argv)
    up = rollout.find_running_server(pipelines.main())
    server, pipeline, first = up.server, up.version.pipeline, up.version.number
    for precision, decode in itertools.product(("fp32", "auto"), ("reduced", "full")):
        command("publish", PRECISION=precision, DECODE=decode)
    made = archive.numbers(pipeline)
    others = itertools.cycle([number for number in made if number != first][-3:])
    with clients(str(server.http), str(server.grpc), options.clients) as load:
        for _ in range(options.times - 1):
            command("rollout", VERSION=str(next(others)))
        command("rollout", VERSION=str(first))
    served = [event for event in history.read(pipeline) if event.what == history.SERVES]
    for event in served[-options.times :]:
        console.note(f"version {event.version}: {event.note}")
    console.note(
        f"{len(load.faults)} of {load.answered + len(load.faults):,} requests of "
        f"{options.clients} clients failed during {options.times} switches"
    )
    for fault in sorted(set(load.faults)):
        console.note(fault)
    return 1 if load.faults else 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
