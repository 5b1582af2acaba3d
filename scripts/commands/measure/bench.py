"""Measures the server with perf_analyzer, shows where the time goes, and writes a report.

    make bench                       about five minutes; starts the server if none is running
    make bench QUICK=1               a short run of about a minute
    make bench IMAGES=photos         your pictures instead of generated photos of two sizes
    make bench MODEL=cascade         another pipeline: cascade, places, sentiment, your own
    make bench TEXTBOOK=1            also the textbook pipeline, on a temporary server
    make bench COMPARE=old.json      also what changed since that run

The report is build/bench/<time>/report.html; beside it are results.json, results.csv and the plots.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from bundle_serving.address import Address
from bundle_serving.process import main_pipeline
from scripts import bootstrap
from scripts.base import console, files, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.measuring import division, machine, perf_analyzer, photos, results, workload
from scripts.measuring.measurement import MOST_SPREAD, Measurement, Shares, count_shares
from scripts.measuring.perf_analyzer import at_hand
from scripts.measuring.photos import Inputs
from scripts.measuring.report import report, terminal
from scripts.measuring.rounds import measure, seconds_each
from scripts.measuring.workload import Configuration, Subject, Target
from scripts.recipes import pipelines
from scripts.server.running import ensure_served
from scripts.server.served import describe_server, find_served_version
from scripts.settings import arguments
from scripts.stacks.state import State

REPORTS = ROOT / "build" / "bench"

ROUNDS, MOST_ROUNDS = 3, 9
# Seconds of measuring; drawing and warming up take the rest of six minutes, or of one.
SECONDS, QUICK_SECONDS = 290, 38
# A quick run of few configurations ends sooner, and measures nothing again.
QUICK_MOST_EACH = 1.5


def main() -> None:
    options = arguments.load()
    quick, old = options.quick, results.load(options.compare) if options.compare else None
    pipeline = pipelines.find_asked_pipeline()
    if options.textbook and not pipeline.is_main:
        raise UserError("the textbook pipeline exists only for the main pipeline", "omit MODEL")
    perf_analyzer.require_here()
    server = ensure_served(pipeline)
    divided = pipeline.recipe.divided
    asked = (
        division.find_subject(server, pipeline)
        if divided
        else workload.find_subject(server, pipeline)
    )
    version = find_served_version(pipeline)
    console.note(f"measuring {describe_server(server, version)}")
    pictures = photos.choose_inputs(pipeline.recipe, version.workspace, options.images)
    for inputs in pictures:
        console.note(f"sent: {inputs.description}")
    division_of = division.measure_division(asked, pictures) if divided else {}

    began = datetime.now(UTC)
    folder = REPORTS / began.strftime("%Y%m%dT%H%M%SZ")
    with lock.one_at_a_time(), files.whole_folder(folder) as draft, contenders(server) as others:
        configurations = workload_of(asked, others, pictures, quick)
        seconds = seconds_each(QUICK_SECONDS if quick else SECONDS, configurations, ROUNDS)
        seconds = min(seconds, QUICK_MOST_EACH) if quick else seconds
        scratch = draft / "scratch"
        scratch.mkdir()
        analyzer = at_hand(server, scratch)
        most = ROUNDS if quick else MOST_ROUNDS
        measurements = measure(configurations, analyzer, ROUNDS, most, seconds)
        shutil.rmtree(scratch)
        about = {
            "title": asked.title,
            "served": asked.served,
            **machine.describe_machine(server, asked.models, analyzer.version),
            **division_of,
            "sent": {inputs.name: inputs.description for inputs in pictures},
            "rounds": ROUNDS,
            "most_rounds": most,
            "seconds": round(seconds, 2),
            "most_spread": MOST_SPREAD,
        }
        answered = count_shares(measurements)
        about |= {"servers": answered} if answered else {}
        found = results.as_dict(f"{began:%Y-%m-%d %H:%M} UTC", about, measurements)
        comparison = results.compare(old, found) if old else None
        report.write(draft, found, measurements, comparison)
    show(measurements, comparison, answered)
    console.note(f"report: {folder.relative_to(ROOT) / 'report.html'}")


def workload_of(
    asked: Subject, others: list[Target], pictures: list[Inputs], quick: bool
) -> list[Configuration]:
    if asked.network is None or asked.transform is None:
        return workload.side_by_side(asked.pipelines, pictures, (1, 4) if quick else (1, 2, 4, 8))
    pixels = photos.pixels_of(pictures[-1], asked.transform)
    choose = workload.a_few if quick else workload.everything
    return choose(asked.pipelines[0], asked.network, others, pictures, pixels)


@contextmanager
def contenders(server: State) -> Iterator[list[Target]]:
    """The textbook pipeline, if requested: on a CPU, as plain processes."""
    if not arguments.load().textbook:
        yield []
        return
    if server.flavour == "gpu":
        raise UserError("the textbook pipeline is served on a CPU here", "omit TEXTBOOK")
    bootstrap.ensure("serve")
    bootstrap.ensure("export")  # the recipe uses torchvision
    from scripts.measuring.textbook import server as textbook

    console.note("starting the textbook pipeline …")
    with textbook.serve_textbook() as (http, grpc):
        where = Address.parse(http), Address.parse(grpc)
        yield [Target.for_model(workload.TEXTBOOK, main_pipeline.DEFAULT, *where)]


def show(
    measurements: list[Measurement], comparison: results.Comparison | None, answered: Shares
) -> None:
    if told := report.tell(measurements):
        console.say(told)
    terminal.show_figures(measurements)
    if shown := report.for_the_waterfall(measurements):
        terminal.show_waterfalls(shown)
        if any(one.cpu_ms for one in shown):
            terminal.show_processor(shown)
    if answered:
        terminal.show_who_answered(answered)
    if comparison:
        for warning in comparison.warnings:
            console.note(f"the circumstances differ: {warning}")
        for cause in comparison.causes:
            console.note(f"changed: {cause}")
        terminal.show_comparison(comparison)
    if unstable := sum(not one.stable for one in measurements):
        console.note(
            f"{unstable} of {len(measurements)} are unstable, marked here and in the report: "
            "usually something else is using the machine"
        )
