"""The bundle beside the textbook pipeline and the services that one would write, in one run.

    make rivals                        all that there are, on a large photo and a small one
    make rivals QUICK=1                a minute's worth of it
    make rivals IMAGES=photos          on pictures of yours
    make rivals ONLY=textbook,fastapi  with some of them
    make rivals DRAFT=1                the services decode JPEGs at reduced size, as the bundle does
    make rivals MINUTES=15             longer, and so with narrower ranges
    make rivals PRECISIONS=fp32,int8   in each of these in turn, the bundle and the services alike

All are up at once, and are asked in turn, round after round, by the same closed loop of clients.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmark import contenders
from benchmark.contenders import ALONE, OURS, SERVICES, WAYS, Contender
from benchmark.load import Round, measure
from scripts.base import console, files, interrupts, lock, tables
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import ROOT
from scripts.base.tables import Bar, Row
from scripts.measuring import machine, photos
from scripts.measuring.confidence import Estimate, spread
from scripts.measuring.photos import Inputs
from scripts.measuring.textbook.server import HERE
from scripts.recipes import pipelines
from scripts.server.running import as_it_runs, ensure_server
from scripts.server.served import describe_server, find_served_version
from scripts.server.up import bring_up
from scripts.settings import arguments
from scripts.settings.arguments import Arguments
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.stacks.state import State

TEXTBOOK = "textbook"
BESIDE = (*WAYS[1:], ALONE)  # only if ONLY names them
SHORTEST_S = 0.1  # of one contender in one round: less may be over before a client begins


@dataclass(frozen=True)
class Plan:
    concurrencies: tuple[int, ...]
    rounds: int
    seconds: float  # for all rounds together, however much there is to measure
    longest: float  # seconds for one contender in one round, however little there is
    warm_up: float  # seconds for each contender and photo, that count for nothing


FULL = Plan(concurrencies=(1, 4, 8), rounds=5, seconds=0, longest=5, warm_up=1)
QUICK = Plan(concurrencies=(4,), rounds=3, seconds=32, longest=1.5, warm_up=0.5)


@dataclass(frozen=True)
class Cell:
    """One contender on one photo at one concurrency."""

    photo: str
    concurrency: int
    contender: str


@dataclass(frozen=True)
class Figures:
    images_per_second: Estimate
    p50_ms: float
    p95_ms: float
    ours: dict[str, Estimate]  # each way to ask the bundle: it is so many times as fast


Results = dict[Cell, list[Round]]


def main() -> int:
    options = arguments.load()
    asked, precisions = choose_contenders(options.only), choose_precisions(options.precisions)
    code = 1  # if none of the precisions can be served
    with our_server(precisions) as servers:
        for server in servers:
            with lock.one_at_a_time():
                compare(server, asked, options)
            code = 0
    return code


def choose_precisions(among: str) -> list[Settings]:
    """Checked before anything is started."""
    precisions = among.split(",") if among else []
    return [Settings.load(os.environ | {Settings.precision.name: each}) for each in precisions]


def compare(server: State, asked: list[str], options: Arguments) -> None:
    require_cpu(server)
    console.note(f"bundle: {describe_server(server, find_served_version())}")
    plan = QUICK if options.quick else replace(FULL, seconds=60 * options.minutes)
    contenders.find_recipe(find_served_version())
    ours = [contenders.bundle(way, server) for way in WAYS if way in (OURS, *asked)]
    with others(asked, options.draft) as up:
        pictures = photos.read_or_draw(options.images)
        labels = {
            inputs.name: {each.name: each.first_label(inputs.rows[0]) for each in (*ours, *up)}
            for inputs in pictures
        }
        results = measure_rounds([*ours, *up], pictures, plan)
    about = {
        "machine": machine.machine(server),
        "served": machine.describe_served(server, pipelines.main()),
        "draft": options.draft,
    }
    figures = sum_up(results)
    show(figures)
    for photo, found in labels.items():
        for name, label in found.items():
            if label != found[OURS]:
                console.note(f"{photo}: {name} sees {label}, and the bundle {found[OURS]}")
    path = record(about | {"settings": server.settings, "labels": labels}, figures, results)
    console.note(f"every latency is in {path.relative_to(ROOT)}")


def require_cpu(server: State) -> None:
    if server.flavour == "gpu":
        raise UserError(
            "the others run on the CPU, but this server runs on a GPU",
            "compare like with like: make up FLAVOUR=cpu, then make rivals",
        )


def choose_contenders(only: str) -> list[str]:
    usual = [TEXTBOOK, *SERVICES]
    asked = only.split(",") if only else usual
    for name in asked:
        if name not in (*usual, *BESIDE):
            raise UserError(
                f"ONLY={name} is not known", f"choose from: {', '.join((*usual, *BESIDE))}"
            )
    return asked


@contextmanager
def our_server(each: Sequence[Settings]) -> Iterator[Iterator[State]]:
    """As `make up` serves, or with each of these settings in turn; left as it was found, up or
    down."""
    before = state.load()
    if before:
        require_cpu(before)
    known = as_it_runs(before) if before else {}
    try:
        yield serve_each(each, known) if each else iter([ensure_server()])
    finally:
        if not before:
            with lock.one_at_a_time():
                flavour.stop_server()
        elif each:
            bring_up(before.settings_at_start.replace_with(FLAVOUR=before.flavour))


def serve_each(each: Sequence[Settings], known: Mapping[str, str]) -> Iterator[State]:
    """One that fails its gate is left out, and has said why."""
    for settings in each:
        try:
            server = bring_up(settings.fill_from(known))
        except AlreadyReported as fault:
            if fault.exit_code == interrupts.INTERRUPTED:
                raise
            console.note(f"{settings.precision} is left out")
        else:
            yield server


@contextmanager
def others(asked: list[str], draft: bool) -> Iterator[list[Contender]]:
    """All at once: one that is not asked takes no time of the processor."""
    setup = contenders.what_is_served(find_served_version(), Settings.load().cores, draft)
    with ExitStack() as up:
        started = []
        for name in asked:
            if name in WAYS:
                continue
            if name == ALONE:
                started.append(contenders.alone())
                continue
            with console.waiting(f"starting {name}"):
                server = (
                    contenders.textbook() if name == TEXTBOOK else contenders.running(name, setup)
                )
                started.append(up.enter_context(server))
        yield started


def measure_rounds(up: list[Contender], pictures: list[Inputs], plan: Plan) -> Results:
    """Round after round, so that what disturbs the machine disturbs all alike."""
    results: Results = {
        Cell(inputs.name, concurrency, each.name): []
        for inputs in pictures
        for concurrency in plan.concurrencies
        for each in up
    }
    questions = {
        (inputs.name, each.name): each.question(inputs.rows) for inputs in pictures for each in up
    }
    seconds = plan.seconds / (plan.rounds * len(results))
    seconds = max(SHORTEST_S, min(plan.longest, seconds))
    with console.waiting("measuring") as waiting:
        for (photo, contender), question in questions.items():
            waiting.show(f"warming up: {contender}, {photo}")
            measure(question, max(plan.concurrencies), plan.warm_up)
        for number in range(1, plan.rounds + 1):
            if not console.out.is_terminal:
                console.note(f"round {number} of {plan.rounds} …")
            for cell, rounds in results.items():
                waiting.show(
                    f"round {number} of {plan.rounds}: {cell.photo}, {cell.concurrency} at a time, "
                    f"{cell.contender}"
                )
                question = questions[cell.photo, cell.contender]
                rounds.append(measure(question, cell.concurrency, seconds))
    return results


def sum_up(results: Results) -> dict[Cell, Figures]:
    rates = {cell: [each.images_per_second for each in rounds] for cell, rounds in results.items()}
    figures = {}
    for cell, rounds in results.items():
        latencies = sorted(1000 * each for one in rounds for each in one.latencies)
        ours = {way: replace(cell, contender=way) for way in WAYS if way != cell.contender}
        figures[cell] = Figures(
            images_per_second=Estimate.from_rounds(rates[cell]),
            p50_ms=median(latencies),
            p95_ms=latencies[int(0.95 * (len(latencies) - 1))],
            ours={
                way: Estimate.ratio(rates[of_way], rates[cell])
                for way, of_way in ours.items()
                if of_way in rates
            },
        )
    return figures


def show(figures: dict[Cell, Figures]) -> None:
    """First how much faster the bundle is, then each figure."""
    if console.Form.is_json:
        for cell, found in figures.items():
            console.write_json(asdict(cell) | asdict(found))
        return
    rivals = {
        cell: found for cell, found in figures.items() if cell.contender not in (*WAYS, ALONE)
    }
    ratios = [found.ours[OURS].median for found in rivals.values() if OURS in found.ours]
    if ratios:
        names = ", ".join(dict.fromkeys(cell.contender for cell in rivals))
        console.say(f"{spread(ratios)} times as fast as {names}.")
    first, *others = [way for way in WAYS if any(cell.contender == way for cell in figures)]
    head = ("", "pictures/s", "p50 ms", "p95 ms", f"{first} is x times as fast", "")
    tables.show("lrrrrl", head, _rows(figures, first, whole=True))
    for way in others:
        tables.show("lrl", ("", f"{way} is x times as fast", ""), _rows(figures, way, whole=False))


def _rows(figures: dict[Cell, Figures], way: str, whole: bool) -> Iterator[Row]:
    """Bars as long as the ratio; the longest fills the room."""
    most = max((each.ours[way].median for each in figures.values() if way in each.ours), default=1)
    before = ""
    for cell, found in figures.items():
        asked = f"{cell.photo}, {cell.concurrency} at a time"
        if asked != before:
            yield (before := asked)
        rate, ratio = found.images_per_second.median, found.ours.get(way)
        rates = (f"{rate:.1f}", f"{found.p50_ms:.0f}", f"{found.p95_ms:.0f}") if whole else ()
        bar: list[str | Bar] = [str(ratio), Bar(0, ratio.median / most)] if ratio else []
        yield [cell.contender, *rates, *bar]


def record(about: dict[str, Any], figures: dict[Cell, Figures], results: Results) -> Path:
    def entry(cell: Cell) -> dict[str, Any]:
        rounds = [
            {
                "images_per_second": each.images_per_second,
                "latencies_ms": [round(1000 * latency, 2) for latency in each.latencies],
            }
            for each in results[cell]
        ]
        return asdict(cell) | asdict(figures[cell]) | {"rounds": rounds}

    path = HERE / f"{time.strftime('%Y-%m-%d-%H%M%S')}.json"
    content = about | {"results": [entry(cell) for cell in figures]}
    files.write(path, json.dumps(content, indent=1) + "\n")
    return path
