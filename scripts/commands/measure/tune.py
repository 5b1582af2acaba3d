"""Finds the best settings for this machine and writes them to .env.

    make tune                     for the most answers per second, of the main pipeline: no MODEL
    make tune LATENCY_MS=50       for the most with 95% of the answers within 50 ms
    make tune IMAGES=photos       for your pictures; MINUTES=10 for a longer search

It tries the precisions that prove accurate, and the processes and threads of decoding and network,
each on a temporary server of the same flavour; on a GPU, copies of the network, and processes and
threads of decoding, with one plan. A running server would distort the figures: STOP=1
stops it during the search and restarts it as it was. The next `make up` applies what was found.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.measuring import photos
from scripts.measuring.perf_analyzer import at_hand, require
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository import archive
from scripts.repository.model_folders import lay_out
from scripts.server import engines
from scripts.server.layouts import layout
from scripts.server.served import serving
from scripts.server.up import bring_up
from scripts.server.wanted_settings import fill_from_version
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.stacks.state import State
from scripts.tuning.hardware import Cpu, hardware_of
from scripts.tuning.search import ROUNDS, Arena, Candidate, Goal, conclude, descend

HERE = ROOT / "build" / "tune"

# Of the final comparison, whose figures are recorded.
FINAL_ROUNDS = 3


def main() -> None:
    asked, settings = arguments.load(), Settings.load()
    goal, seconds = Goal(asked.latency_ms), 60 * asked.minutes
    main = pipelines.main()
    if not pipelines.find_asked_pipeline().is_main:
        raise UserError("make tune measures the main pipeline alone", "omit MODEL")
    if main.recipe.network_model(CPU) is None:
        raise UserError(f"{main.name} has no network to be tuned", "measure it: make bench")
    settings = fill_from_version(settings, main, serving(main))
    server = state.load()
    name, why = flavour.serving_or_chosen(settings, server)
    console.note(f"flavour {name}: {why}")
    stack = flavour.stack(name, settings)
    hardware = hardware_of(stack, settings, main, HERE)
    layout(settings, hardware.engine)  # or ends, as what follows, before anything is stopped
    require(name)
    if asked.images:
        photos.read_or_draw(asked.images)
    with stop_meanwhile(server, hardware), lock.one_at_a_time():
        try:
            tune(hardware, goal, seconds)
        finally:
            shutil.rmtree(HERE, ignore_errors=True)


@contextmanager
def stop_meanwhile(server: State | None, hardware: Cpu) -> Iterator[None]:
    """A running server would distort the figures, but it is stopped only with STOP=1, and once
    there is a network to be measured."""
    if server is None or not flavour.stack_of(server).alive():
        yield
        return
    if not arguments.load().stop:
        used = "the GPU" if server.flavour == "gpu" else "the cores"
        raise UserError(
            f"the running {server.flavour} server uses {used} to be measured",
            "make tune STOP=1 stops it during the search and restarts it; or run make down first",
        )
    main = hardware.main
    with lock.one_at_a_time(), archive.draft(main, serving(main)) as draft:
        hardware.stack.prepare()
        hardware.make(draft)
    console.note(
        f"stopping the {server.flavour} server during the search; it is restarted afterwards"
    )
    with lock.one_at_a_time():
        flavour.stack_of(server).stop()
    try:
        yield
    finally:
        bring_up(server.settings_at_start.replace_with(FLAVOUR=server.flavour))


def tune(hardware: Cpu, goal: Goal, seconds: float) -> None:
    stack, settings, main = hardware.stack, hardware.settings, hardware.main
    stack.prepare()
    made = hardware.prove()
    start, search = hardware.start(made), hardware.axes(made)
    proved = made[start.precision]
    manifest = proved.manifest
    inputs = photos.choose_inputs(main.recipe, proved, arguments.load().images)
    scratch = HERE / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)

    def lay_out_candidate(candidate: Candidate, target: Path) -> None:
        how = layout(settings.replace_with(**candidate.settings), hardware.engine)
        lay_out(main, made[candidate.precision], how, target)
        engines.copy_borrowed(main, how, target)

    console.note(f"goal: {goal}, of {manifest.describe()}; {seconds / 60:g} minutes")
    console.note(f"current settings: {start}")
    analyzer = at_hand(State(stack.flavour, "", settings.values), scratch)
    began = time.monotonic()
    asked = stack, main.ensemble, lay_out_candidate, goal
    with Arena(*asked, settings.cores, inputs, analyzer, HERE) as arena:

        def time_is_left() -> bool:
            """Enough for one more comparison and the final one, which counts."""
            left = began + seconds - time.monotonic()
            console.note(f"{max(0, left):.0f} s of the search left")
            return left > arena.duel_seconds * (1 + FINAL_ROUNDS / ROUNDS)

        best = descend(start, search, arena.beats, time_is_left)
        if best != start:
            console.note(f"final comparison: {best} against the current settings")
            if arena.starts(best, start):
                arena.duel(best, start, FINAL_ROUNDS)
            else:
                best = start
    circumstances = f"{manifest.describe()}; {hardware.describe(proved)}"
    conclude(settings, goal, best, start, arena.scores, circumstances)
