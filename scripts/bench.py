"""Measures the server with perf_analyzer, shows where the time goes, and writes a report.

    make bench                       about five minutes; the server is brought up if it is not
    make bench QUICK=1               what a minute allows
    make bench IMAGES=photos         your pictures, in place of photos of two sizes drawn here
    make bench TEXTBOOK=1            the textbook recipe beside it, served for as long as it takes
    make bench COMPARE=old.json      and what changed since the run that wrote it

The report is build/bench/<time>/report.html; beside it are results.json, results.csv and the plots.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from bundle_serving.start_server import PIPELINE
from scripts import bootstrap, files
from scripts.bootstrap import ROOT
from scripts.classify import running_server
from scripts.errors import UserError, guarded
from scripts.host import console, engines, flavour, lock
from scripts.host.state import State
from scripts.measuring import compare, machine, photos, report, results, terminal, workload
from scripts.measuring.measurement import MOST_SPREAD, Measurement
from scripts.measuring.perf_analyzer import at_hand
from scripts.measuring.rounds import measure, seconds_each
from scripts.measuring.workload import Target
from scripts.pipeline import pipelines
from scripts.up import described, served_transform, served_version

REPORTS = ROOT / "build" / "bench"

ROUNDS = 3
# For measuring alone; what is left of six minutes, or of one, goes to drawing and to warming up.
SECONDS, QUICK_SECONDS = 290, 38


def main() -> int:
    quick, earlier = bool(os.environ.get("QUICK")), os.environ.get("COMPARE")
    old = results.load(Path(earlier)) if earlier else None
    server = running_server()
    console.note(f"measuring {described(server, served_version())}")
    how = served_transform()
    pictures = photos.given_or_drawn(os.environ.get("IMAGES", ""), how)
    for inputs in pictures:
        console.note(f"sent: {inputs.described}")

    ensemble, network = targets(server)
    pixels = photos.pixels_of(pictures[-1], how)
    began = datetime.now(UTC)
    folder = REPORTS / began.strftime("%Y%m%dT%H%M%SZ")
    with lock.one_at_a_time(), files.whole_folder(folder) as draft, contenders(server) as others:
        choose = workload.a_few if quick else workload.everything
        configurations = choose(ensemble, network, others, pictures, pixels)
        seconds = seconds_each(QUICK_SECONDS if quick else SECONDS, configurations, ROUNDS)
        scratch = draft / "scratch"
        scratch.mkdir()
        analyzer = at_hand(server, scratch)
        measurements = measure(configurations, analyzer, ROUNDS, seconds)
        shutil.rmtree(scratch)
        about = {
            **machine.described(server, [ensemble], analyzer),
            "sent": {inputs.name: inputs.described for inputs in pictures},
            "rounds": ROUNDS,
            "seconds": round(seconds, 2),
            "most_spread": MOST_SPREAD,
        }
        found = results.as_dict(f"{began:%Y-%m-%d %H:%M} UTC", about, measurements)
        comparison = compare.compare(old, found) if old else None
        report.write(draft, found, measurements, comparison)
    show(measurements, comparison)
    console.note(f"report: {folder.relative_to(ROOT) / 'report.html'}")
    return 0


@contextmanager
def contenders(server: State) -> Iterator[list[Target]]:
    """The textbook recipe, where it is asked for: on a CPU, by plain processes."""
    if not os.environ.get("TEXTBOOK"):
        yield []
        return
    if server.flavour == "gpu":
        raise UserError("the textbook recipe is served on a CPU here", "leave TEXTBOOK out")
    for layer in ("serve", "export"):  # it needs torchvision, as the recipe has it
        bootstrap.ensure(layer)
    from benchmark.textbook import server as textbook

    console.note("starting the textbook recipe …")
    with textbook.served() as (http, grpc):
        yield [Target.asked(workload.TEXTBOOK, PIPELINE, http, grpc)]


def targets(server: State) -> tuple[Target, Target]:
    """The ensemble, and the network in it, of the server that is up."""
    engine = engines.of(flavour.stack(server.flavour, server.started_with))
    network = pipelines.first().network(engine)
    return (
        Target.asked(workload.ENSEMBLE, PIPELINE, server.http, server.grpc),
        Target.asked(workload.NETWORK, network, server.http, server.grpc),
    )


def show(measurements: list[Measurement], comparison: compare.Comparison | None) -> None:
    def put(table: Table) -> None:
        console.out.print(table, markup=False)  # a folder's name may look like some

    put(terminal.figures(measurements))
    if shown := report.for_the_waterfall(measurements):
        put(terminal.waterfalls(shown))
    if comparison:
        for warning in comparison.warnings:
            console.note(f"not the same circumstances: {warning}")
        for cause in comparison.causes:
            console.note(f"changed: {cause}")
        put(terminal.comparison(comparison))
    if unstable := sum(not one.stable for one in measurements):
        console.note(
            f"{unstable} of {len(measurements)} are unstable, so no figures: "
            "the report says why; mostly something else is at work on the machine"
        )


if __name__ == "__main__":
    sys.exit(guarded(main))
