"""What the simulation of many cores (cores.py) is made of, how far it lies from what one core and
two do, and what it says of more.

    make up
    make down
    .venv/bin/python -m benchmark.simulated.cores_measured photo.jpg [--seconds 6] [--rounds 3]

Of the version that served, on a quiet machine: servers of their own, on one core and on two, with
this command as their client on the same cores.
"""

import argparse
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np

from benchmark.contenders import find_network, find_recipe
from benchmark.load import Question, infer_path, measure, over_http
from benchmark.scale import table
from benchmark.simulated.cores import Service, simulate
from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import Transform, to_pixels
from scripts.base import console
from scripts.base.errors import run_guarded
from scripts.base.paths import ROOT
from scripts.recipes.layout import CPU, Share
from scripts.server import layouts
from scripts.server.served import find_served_version
from scripts.settings.settings import Settings
from scripts.stacks import temporary
from scripts.tuning.search import shares

TIMES, WARM_UP = 40, 5
SIZES = (1, 2, 4)
# On one core and on two.
CHECKED = (
    (1, Share(1, 1)),
    *((2, Share(*each)) for each in itertools.product((1, 2), repeat=2)),
)
AT_ONCE = (1, 4, 8)
MORE_CORES = (4, 8, 16, 32)
FOLDER = ROOT / "build" / "cores"

Asked: TypeAlias = tuple[int, Share, int]  # cores, of the network, at a time


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    if not options.picture.is_file():
        parser.error(f"{options.picture} is no file; name a JPEG of the usual size")
    picture = options.picture.read_bytes()
    decode, network = measure_steps(picture)
    measured = measure_servers(picture, options.seconds, options.rounds)
    alone = measured[1, Share(1, 1), 1]
    service = Service(decode, network, 1000 / alone - decode - network[1, 1])
    print(
        f"A picture takes {decode:.1f} ms to decode and {service.around:.1f} around that; the "
        "network, threads x pictures: "
        + ", ".join(f"{threads} x {size} {ms:.1f} ms" for (threads, size), ms in network.items())
    )
    print(compare(service, measured))
    print(extrapolate(service))
    return 0


def measure_steps(picture: bytes) -> tuple[float, dict[tuple[int, int], float]]:
    version = find_served_version()
    folder = version.member(find_recipe(version).models.preprocessing)
    transform = Transform.load(folder / "transform.json")
    decode = time_it(lambda: to_pixels(picture, transform))
    pixels = to_pixels(picture, transform)[None]
    found = {}
    for threads in (1, 2):
        with cores_alone(threads):
            engine = Engine(find_network(version), version.precision, threads=threads)
            for size in SIZES:
                batch = {"input": np.repeat(pixels, size, axis=0)}
                found[threads, size] = time_it(partial(engine.only_output, batch))
    return decode, found


def time_it(do: Callable[[], object]) -> float:
    taken = []
    for _ in range(WARM_UP + TIMES):
        began = time.perf_counter()
        do()
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken[WARM_UP:])


@contextmanager
def cores_alone(count: int) -> Iterator[None]:
    """For this process and those that it starts."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(everywhere)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def measure_servers(picture: bytes, seconds: float, rounds: int) -> dict[Asked, float]:
    """Pictures a second."""
    version, settings = find_served_version(), Settings.load()
    found: dict[Asked, list[float]] = {}
    for _, (cores, share) in itertools.product(range(rounds), CHECKED):
        with (
            console.waiting(f"{cores} cores, {share.instances} x {share.threads}"),
            cores_alone(cores),
        ):
            own = settings.replace_with(
                CORES=str(cores),
                NETWORK_INSTANCES=str(share.instances),
                NETWORK_THREADS=str(share.threads),
            )
            layouts.lay_out(version, layouts.layout(own, CPU), FOLDER / "repository")
            name, log = "a server to measure", FOLDER / "server.log"
            ensemble = version.pipeline.ensemble
            with temporary.triton(name, FOLDER / "repository", log, ensemble) as (http, _):
                asked = Question(name, over_http(http, infer_path(ensemble)), [picture])
                for clients in AT_ONCE:
                    measure(asked, clients, 1)
                    rate = measure(asked, clients, seconds).images_per_second
                    found.setdefault((cores, share, clients), []).append(rate)
            shutil.rmtree(FOLDER)
    return {each: median(rates) for each, rates in found.items()}


def compare(service: Service, measured: Mapping[Asked, float]) -> str:
    """The first point is what the model was made of."""
    rows = []
    for (cores, share, clients), rate in measured.items():
        modelled = simulate(service, cores, share, clients).rate
        rows.append(
            (
                *(f"{cores}", f"{share.instances} x {share.threads}", f"{clients}"),
                *(f"{rate:.1f}", f"{modelled:.1f}", f"{100 * (modelled / rate - 1):+.0f}%"),
            )
        )
    head = ("cores", "processes x threads", "at a time", "measured", "model", "off by")
    return table(head, rows)


def extrapolate(service: Service) -> str:
    rows = []
    for cores in MORE_CORES:
        usual = Share.of_cores(cores)
        for share in dict.fromkeys([*shares(cores), usual]):
            one = simulate(service, cores, share, 1)
            many = simulate(service, cores, share, 4 * cores)
            rows.append(
                (
                    f"{cores}",
                    f"{share.instances} x {share.threads}" + (" (usual)" if share == usual else ""),
                    *(f"{many.rate:.0f}", f"{many.p95:.0f} ms", f"{one.p50:.1f} ms"),
                )
            )
    head = ("cores", "processes x threads", "four a core at a time", "p95", "one at a time, p50")
    return table(head, rows)


if __name__ == "__main__":
    sys.exit(run_guarded(main))
