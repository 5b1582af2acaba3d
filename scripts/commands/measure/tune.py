"""Finds the best settings for this machine and writes them to .env.

    make tune                     for the most answers per second
    make tune LATENCY_MS=50       for the most with 95% of the answers within 50 ms
    make tune IMAGES=photos       for your pictures; MINUTES=10 for a longer search

It tries the precisions that prove accurate, and the processes and threads of decoding and network,
each on a temporary server of the same flavour. A running server would distort the figures: STOP=1
stops it during the search and restarts it as it was. The next `make up` applies what was found.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from scripts.artefacts.manifest import Manifest
from scripts.artefacts.workspace import Workspace
from scripts.base import console, files, lock
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import ROOT
from scripts.measuring import photos
from scripts.measuring.perf_analyzer import at_hand, require
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU, Share, in_one_step
from scripts.repository import archive
from scripts.repository.model_folders import lay_out
from scripts.server import engines
from scripts.server.layouts import layout
from scripts.server.served import serving
from scripts.server.up import bring_up, fill_from_version
from scripts.settings import arguments, dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.stacks.gpu import GpuStack
from scripts.stacks.stack import Stack
from scripts.stacks.state import State
from scripts.steps.engine import processor
from scripts.tuning.arena import ROUNDS, Arena
from scripts.tuning.goal import Goal, Score
from scripts.tuning.search import Candidate, axes, descend

HERE = ROOT / "build" / "tune"

# Of the final comparison, whose figures are recorded.
FINAL_ROUNDS = 3


def main() -> int:
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
    if isinstance(stack, GpuStack):
        raise UserError(
            "make tune searches CPU settings",
            "on a GPU, set OPT_BATCH to the batch size that make bench finds fastest",
        )
    require(name)
    if asked.images:
        photos.read_or_draw(asked.images)  # or ends, before anything is stopped
    with stop_meanwhile(server, stack, settings), lock.one_at_a_time():
        try:
            return tune(stack, settings, goal, seconds)
        finally:
            shutil.rmtree(HERE, ignore_errors=True)


@contextmanager
def stop_meanwhile(server: State | None, stack: Stack, settings: Settings) -> Iterator[None]:
    """A running server would distort the figures, but it is stopped only with STOP=1, and once
    there is a network to be measured."""
    if server is None or not flavour.stack(server.flavour, server.settings_at_start).alive():
        yield
        return
    if not arguments.load().stop:
        raise UserError(
            f"the running {server.flavour} server uses the cores to be measured",
            "make tune STOP=1 stops it during the search and restarts it; or run make down first",
        )
    main = pipelines.main()
    with lock.one_at_a_time(), archive.draft(main, serving(main)) as draft:
        stack.prepare()
        engines.export(stack, settings, main, draft)  # to the cache
    console.note(
        f"stopping the {server.flavour} server during the search; it is restarted afterwards"
    )
    with lock.one_at_a_time():
        flavour.stack(server.flavour, server.settings_at_start).stop()
    try:
        yield
    finally:
        bring_up(server.settings_at_start.replace_with(FLAVOUR=server.flavour))


def tune(stack: Stack, settings: Settings, goal: Goal, seconds: float) -> int:
    stack.prepare()
    made = prove_precisions(stack, settings)
    main, proved = pipelines.main(), made[settings.precision]
    manifest = proved.manifest
    inputs = photos.choose_inputs(main.recipe, proved, arguments.load().images)
    scratch = HERE / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)

    def lay_out_candidate(candidate: Candidate, target: Path) -> None:
        how = layout(settings.replace_with(**candidate.settings), CPU)
        lay_out(main, made[candidate.precision], how, target)
        engines.link_borrowed(main, how, target)

    start = as_it_is(settings)
    console.note(f"goal: {goal}, of {manifest.describe()}; {seconds / 60:g} minutes")
    console.note(f"current settings: {start}")
    began = time.monotonic()
    analyzer = at_hand(State(stack.flavour, "", settings.values), scratch)
    asked = stack, main.ensemble, lay_out_candidate, goal
    with Arena(*asked, settings.cores, inputs, analyzer, HERE) as arena:

        def time_is_left() -> bool:
            """Enough for one more comparison and the final one, which counts."""
            left = began + seconds - time.monotonic()
            console.note(f"{max(0, left):.0f} s of the search left")
            return left > arena.duel_seconds * (1 + FINAL_ROUNDS / ROUNDS)

        decodes = "preprocessing" in main.recipe.model_names
        in_one = in_one_step(settings.steps, CPU) or not decodes
        search = axes(settings.cores, list(made), in_one)
        best = descend(start, search, arena.beats, time_is_left)
        if best != start:
            console.note(f"final comparison: {best} against the current settings")
            arena.duel(best, start, FINAL_ROUNDS)
    return conclude(settings, goal, best, start, arena.scores, manifest)


def prove_precisions(stack: Stack, settings: Settings) -> dict[str, Workspace]:
    """The precisions that may be served, each with what its check needs; the first is the current
    one. Others are tried only with PRECISION=auto."""
    chosen, main = settings.precision, pipelines.main()
    made = {chosen: Workspace(HERE / chosen)}
    if seed := serving(main):
        files.link_tree(seed.folder, made[chosen].folder)
    engines.export(stack, settings, main, made[chosen])
    engines.prove(stack, settings, main, made[chosen])
    others = ("int8", "fp32") if chosen == "auto" else ()
    for other in others:
        asked = settings.replace_with(PRECISION=other)
        has_it = main.recipe.computes_in(asked) == other
        if other == made[chosen].decision["precision"] or not has_it:
            continue
        try:
            tried = Workspace(HERE / other)
            files.link_tree(made[chosen].folder, tried.folder)
            engines.prove(stack, asked, main, tried)
            made[other] = tried
        except AlreadyReported:
            console.note(f"{other} is skipped")
        except UserError as fault:
            console.note(f"{other} is skipped: {fault.cause}; {fault.remedy}")
    return made


def as_it_is(settings: Settings) -> Candidate:
    return Candidate(settings.precision, Share.network(settings), Share.preprocessing(settings))


def conclude(
    settings: Settings,
    goal: Goal,
    winner: Candidate,
    start: Candidate,
    scores: dict[Candidate, Score],
    manifest: Manifest,
) -> int:
    new, old = scores[winner], scores[start]
    if not new.throughput:
        raise UserError(
            "no answers were counted with any settings",
            "allow more time, such as MINUTES=15; .env is unchanged",
        )
    if not goal.is_met(new):
        raise UserError(
            f"no settings answer 95% within {goal.latency_ms:g} ms (best: {new.p95:.0f} ms)",
            "allow more time, or use a smaller network; .env is unchanged",
        )
    if not goal.beats(new, old):
        console.note(f"nothing beats the current settings ({old}); .env is unchanged")
        return 0
    figures = f"{new}, was {old}"
    change = {name: value for name, value in winner.settings.items() if value != settings[name]}
    circumstances = f"{manifest.describe()}; {processor()}, {settings.cores} cores"
    dotenv_file.change(change, f"make tune: {date.today()}: {figures} ({goal}; {circumstances})")
    console.note(f"{winner}: {figures}")
    console.note(f".env now says {', '.join(f'{k}={v}' for k, v in change.items())}")
    console.note("apply them: make up")
    return 0
