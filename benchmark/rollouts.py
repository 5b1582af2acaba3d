"""Rollout after rollout while clients ask without a pause: is a request ever lost?

    python -m benchmark.rollouts [--times 10] [--clients 8]
    python -m benchmark.rollouts --own-requests 3

Publishes versions of what is up (two precisions, two ways to decode) and switches from one to the
next, over and over, whichever is faster; half of the clients ask over gRPC. Prints what became of
their requests, and goes back to the version that served at first. Or, without clients, what a
rollout's own requests take of the processors, and what they would take with a pause of 10 ms and
all of WATCH_SECONDS for each step, in turns; of the two versions that there are.
"""

import argparse
import io
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from benchmark.load import processes_of
from bundle_client import Client
from scripts.artefacts.picture import mug
from scripts.base import console
from scripts.base.errors import AlreadyReported, UserError, run_guarded
from scripts.base.paths import PYTHON, ROOT
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history
from scripts.rollout import rollout, stream
from scripts.rollout.rollout import InPlace
from scripts.rollout.stream import Stream

IDLE_S = 5


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


def compare_own_requests(rounds: int) -> int:
    # A load takes longer than its requests would, and is none of theirs.
    with patch.object(stream, "REST_S", 10):
        loads = [measure_switch().loads_cpu_s for _ in range(2)]
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "with long pauses": nullcontext,
        "with a pause of 10 ms": ask_all_the_time,
    }
    # Each way with either version as the new one.
    for name in (*ways, *reversed(ways)) * rounds:
        with ways[name]():
            made = measure_switch()
        console.note(
            f"{name}: {made.asked} requests, {made.asked_new} of the new version; "
            f"{made.cpu_s - statistics.mean(loads):.1f} s of processor time"
        )
    console.note(f"taken off: {' and '.join(f'{cpu_s:.1f}' for cpu_s in loads)} s of the loads")
    return 0


@contextmanager
def ask_all_the_time() -> Iterator[None]:
    """Rollouts whose stream asks all the time that it may."""
    with ExitStack() as stack:
        patches = (
            (stream, "PAUSE_S", 0.01),
            (stream, "PAUSES", 0),
            (stream, "REST_S", 0.01),
            (Stream, "_pause_s", 0.01),
            (rollout, "FEW", sys.maxsize),
            (rollout, "is_certain", lambda *_: False),
            (rollout, "ask_enough", lambda *_: None),
        )
        for of, name, value in patches:
            stack.enter_context(patch.object(of, name, value))
        yield


@dataclass
class Switched:
    """Processor time beyond that of a server which nobody asks."""

    asked: int
    asked_new: int
    cpu_s: float
    loads_cpu_s: float


def measure_switch() -> Switched:
    """To the other version."""
    up = rollout.find_running_server(pipelines.main())
    other, *_ = find_others(up.version.pipeline, up.version.number)
    http = str(up.server.http)
    began = sum_cpu_s(http)
    time.sleep(IDLE_S)
    idle = (sum_cpu_s(http) - began) / IDLE_S
    spent: dict[str, float] = {}
    streams: list[Stream] = []

    def count(step: str) -> Any:
        do = getattr(InPlace, step)

        def do_and_count(switch: InPlace, *given: Any) -> Any:
            streams.extend(one for one in given if isinstance(one, Stream))
            began, before = time.monotonic(), sum_cpu_s(http)
            try:
                return do(switch, *given)
            finally:
                spent[step] = sum_cpu_s(http) - before - idle * (time.monotonic() - began)

        return patch.object(InPlace, step, do_and_count)

    with count("load_beside"), count("settle"), count("carry_out"):
        rollout.switch_to(other, "rollout", up, judge_labels=False)
    asked = Counter(answer.version for answer in streams[0].all())
    whole = spent.pop("carry_out")
    return Switched(asked.total(), asked[other], whole, sum(spent.values()))


def find_others(pipeline: Pipeline, present: int) -> list[int]:
    others = [number for number in archive.numbers(pipeline) if number != present]
    if not others:
        raise UserError("there is no other version to switch to", "make publish")
    return others


def sum_cpu_s(http: str) -> float:
    """Of all of a server's processes, and of those that have ended."""
    return sum(sum(process.cpu_times()[:4]) for process in processes_of(http))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--own-requests", type=int, metavar="ROUNDS")
    options = parser.parse_args(argv)
    if options.own_requests:
        return compare_own_requests(options.own_requests)
    up = rollout.find_running_server(pipelines.main())
    server, pipeline, first = up.server, up.version.pipeline, up.version.number
    for precision, decode in itertools.product(("fp32", "auto"), ("reduced", "full")):
        command("publish", PRECISION=precision, DECODE=decode)
    others = itertools.cycle(find_others(pipeline, first)[-3:])
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
