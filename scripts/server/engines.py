"""The steps of a version, each run only if its result does not fit: weights -> ONNX -> engine."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bundle_serving.infer import Answer, Question
from bundle_serving.protocol import golden
from scripts import bootstrap
from scripts.artefacts import packages
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import why_export
from scripts.artefacts.step import BUILD_PLAN, ENGINE, QUANTISE, Place
from scripts.artefacts.step import GATE as GATE_STEP
from scripts.artefacts.workspace import Workspace
from scripts.base import console, disk, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import configs
from scripts.recipes.layout import CPU, GPU, Engine, Layout, precision_of
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, live, model_folders
from scripts.server import labelled_photos
from scripts.settings.settings import Settings
from scripts.stacks import state
from scripts.stacks.local import run_here
from scripts.stacks.stack import Stack
from scripts.steps import engine, gate, plan, quantise

if TYPE_CHECKING:  # it takes long to load what talks to Docker
    from scripts.stacks.gpu import GpuStack

# The last result of each step, from a make that failed later or from `make tune`.
CACHE = ROOT / "build" / "cache"
TIMING_CACHES = CACHE / "timing"
CANDIDATE = ROOT / "build" / "candidate"
# What the steps of that name are called with, where somebody else calls them.
PLAN_WORDS, GATE_WORDS = CACHE / "plan.words", CACHE / "gate.words"
# What the result of a step takes, with its draft, for a network of 25 million weights.
STEP_MB = 300
GATE = "gate.txt"  # beside a plan, or trees: which combinations have passed the gate


def make(
    stack: Stack, settings: Settings, layout: Layout, pipeline: Pipeline, made: Workspace
) -> None:
    """Exports the network, prepares it for the flavour's hardware, and checks it there."""
    recipe = pipeline.recipe
    configs.require_switches(recipe.triton, recipe.ensemble, recipe.members)
    if not export(stack, settings, pipeline, made):
        return
    if stack.engine is GPU:
        on_gpu = cast("GpuStack", stack)
        if not made.forest:
            _build_plan(on_gpu, settings, layout, pipeline, made)
        _pass_the_gate(on_gpu, settings, layout, pipeline, made)
    else:
        prove(stack, settings, pipeline, made)


def export(stack: Stack, settings: Settings, pipeline: Pipeline, made: Workspace) -> bool:
    """Returns whether the pipeline has a network."""
    if needed := pipeline.recipe.requirements_file:
        packages.prepare(needed, stack.flavour, archive.home(pipeline))
    export = pipeline.recipe.export(settings, stack.engine)
    if export:
        run = run_here if export.step.layers else stack.run_step
        for layer in export.step.layers:
            bootstrap.ensure(layer)
        _step(
            pipeline,
            made.onnx,
            "export",
            lambda out: why_export(out, export.spec, export.as_before),
            lambda: run(export.step, *export.words, "--out", made.onnx),
        )
    pipeline.recipe.require(made, settings, live.REPOSITORY)
    if trial := pipeline.recipe.trial(made):
        stack.run_step(trial.step, *trial.words)
    return export is not None


def needs_pytorch(settings: Settings, pipeline: Pipeline) -> bool:
    """Whether its network is exported in the image that has it. What FROM names, the server's image
    takes in."""
    export = None if settings.from_ else pipeline.recipe.export(settings, CPU)
    return export is not None and export.step.place is Place.EXPORT


def prove(stack: Stack, settings: Settings, pipeline: Pipeline, made: Workspace) -> None:
    """Chooses the precision on a CPU, and checks that the network answers as PyTorch does."""
    precision = pipeline.recipe.computes_in(settings)
    network = made.network_of(precision)
    if network == made.int8:
        _quantise(stack, settings, pipeline, made)
    takes_pictures = pipeline.recipe.asked_about == "IMG"
    samples = settings.photos("SAMPLES") if takes_pictures else None
    with labelled_photos.find_labels(pipeline, made, settings.max_drop) as labels:
        wanted = engine.Check(network, precision, samples, labels)
        now = replace(wanted, labels=labelled_photos.keep_given(labels))
        _step(
            pipeline,
            made.engine,
            "engine",
            lambda out: None if now.fits(out) else "not checked yet",
            lambda: stack.run_step(ENGINE, *as_words(wanted), "--out", made.engine),
        )


def _step(
    pipeline: Pipeline,
    out: Path,
    what: str,
    why: Callable[[Path], str | None],
    run: Callable[[], None],
) -> None:
    """Runs a step if its result does not fit, and says why; a cached result may fit."""
    reason = why(out)
    if reason is None:
        return
    own = CACHE / pipeline.ensemble / out.name
    # Another pipeline may have the same network; but a plan has passed the gate of its own.
    others = [] if out.name == "plan" else CACHE.glob(f"*/{out.name}")
    for kept in (own, *others):
        if why(kept) is None:
            files.link_tree(kept, out)
            return
    disk.require_room(out, STEP_MB, what)
    console.note(f"{pipeline.mark} {what}: {reason}".strip())
    run()
    files.link_tree(out, own)


def _quantise(stack: Stack, settings: Settings, pipeline: Pipeline, made: Workspace) -> None:
    wanted = quantise.Quantised(made.onnx, settings.photos("CALIBRATION"), settings.accuracy)

    def run() -> None:
        if wanted.calibration is None:
            raise UserError(
                "PRECISION=int8 needs pictures to calibrate with",
                "name a folder with a few hundred photos: CALIBRATION=photos",
            )
        stack.run_step(QUANTISE, *as_words(wanted), "--out", made.int8)

    _step(pipeline, made.int8, "int8", lambda out: why_export(out, wanted, as_before=True), run)


def _build_plan(
    stack: GpuStack, settings: Settings, layout: Layout, pipeline: Pipeline, made: Workspace
) -> None:
    profile = pipeline.recipe.shapes(made, settings)
    wanted = plan.identity(made.onnx, stack.gpu, stack.tensorrt, profile)
    _step(
        pipeline,
        made.plan,
        "plan",
        lambda out: plan.why_build(out, wanted),
        lambda: stack.run_step(BUILD_PLAN, *_list_plan_words(made, profile)),
    )
    if why := plan.why_build(made.plan, wanted):
        raise UserError(
            f"the plan that was built does not fit the server's image: {why}",
            "the images of TRITON_TAG differ; choose another release",
        )
    # Of two that fit, the one that has passed the gate: with Compose alone, the last result.
    kept = Workspace(CACHE / pipeline.ensemble)
    fits = plan.why_build(kept.plan, wanted) is None and has_passed(kept, layout)
    if fits and not has_passed(made, layout):
        files.link_tree(kept.plan, made.plan)


def _list_plan_words(made: Workspace, profile: Mapping[str, str]) -> list[str | Path]:
    given = {"onnx": made.onnx, "shapes": profile, "timing_caches": TIMING_CACHES}
    return as_words(given | {"out": made.plan})


def hand_on(stack: Stack, settings: Settings, pipeline: Pipeline) -> None:
    """What was exported last, for steps in other containers."""
    made = Workspace(CACHE / pipeline.ensemble)
    if trial := pipeline.recipe.trial(made):
        stack.run_step(trial.step, *trial.words)
    _write_words(PLAN_WORDS, _list_plan_words(made, pipeline.recipe.shapes(made, settings)))


def write_gate_words(stack: Stack, layout: Layout, pipeline: Pipeline, made: Workspace) -> None:
    _write_words(GATE_WORDS, as_words(_candidate_of(stack, layout, pipeline, made)))


def _write_words(file: Path, words: Sequence[str | Path]) -> None:
    files.write(file, "".join(f"{shlex.quote(str(word))}\n" for word in words))


def _pass_the_gate(
    stack: GpuStack, settings: Settings, layout: Layout, pipeline: Pipeline, made: Workspace
) -> None:
    """Serves it from a separate repository and compares its answers. What has passed is not checked
    again."""
    if has_passed(made, layout):
        return
    console.note("accuracy gate: the network and the whole ensemble against the original")
    lay_out = partial(model_folders.lay_out, pipeline, made, layout)
    prove_served(stack, settings.start_timeout, layout, pipeline, made, lay_out)
    note_passed(made, layout)


def has_passed(made: Workspace, layout: Layout) -> bool:
    passed = _gate_file(made)
    return passed.exists() and passed.read_text() == _gate_fingerprint(made, layout)


def note_passed(made: Workspace, layout: Layout) -> None:
    files.write(_gate_file(made), _gate_fingerprint(made, layout))


def _gate_file(made: Workspace) -> Path:
    return (made.onnx if made.forest else made.plan) / GATE


def _gate_fingerprint(made: Workspace, layout: Layout) -> str:
    """What the gate checks: this plan together with these steps."""
    if made.forest:
        return str(made.manifest.onnx["forest"])
    plan_hash = json.loads((made.plan / "manifest.json").read_text())["plan"]["sha256"]
    after = " before scores that stay" if layout.scores_stay else ""
    return f"{plan_hash} behind {layout.decoding.step}{after}"


def prove_served(
    stack: Stack,
    limit: float,
    layout: Layout,
    pipeline: Pipeline,
    made: Workspace,
    lay_out: Callable[[Path], None],
    more: Sequence[Question] = (),
) -> tuple[int, list[Answer]]:
    """Checks the whole ensemble on a temporary server. Returns the memory that it takes, and its
    answers to the requests with known answers and to `more`, which are not judged here."""
    candidate = replace(_candidate_of(stack, layout, pipeline, made), limit=limit)
    lay_out_candidate(layout, pipeline, made, lay_out, more)
    state.REFUSED.unlink(missing_ok=True)
    try:
        stack.run_step(GATE_STEP, *as_words(candidate))
        answers = judge_candidate(layout, pipeline, made)
        memory = int(json.loads((CANDIDATE / "seen.json").read_text())["memory"])
        return memory, answers
    finally:
        if (said := CANDIDATE / gate.LOG).exists():
            files.write_private(state.REFUSED, said.read_text(errors="replace"))
        shutil.rmtree(CANDIDATE, ignore_errors=True)


def _candidate_of(
    stack: Stack, layout: Layout, pipeline: Pipeline, made: Workspace
) -> gate.Candidate:
    recipe, engine = pipeline.recipe, layout.engine
    candidate = gate.Candidate(
        CANDIDATE / "repository",
        pipeline.ensemble,
        CANDIDATE / "questions.npz",
        engine.config,
        stack.run_dir,
        CANDIDATE,
        load=tuple(recipe.list_borrowed(engine)),
    )
    if network := recipe.network_model(engine):
        reference, precision = _reference(made, engine), precision_of(made, engine)
        candidate = replace(candidate, network=network, reference=reference, precision=precision)
    return candidate


def _reference(made: Workspace, engine: Engine) -> Path:
    return made.network_of(precision_of(made, engine))


def lay_out_candidate(
    layout: Layout,
    pipeline: Pipeline,
    made: Workspace,
    lay_out: Callable[[Path], None],
    more: Sequence[Question] = (),
) -> None:
    """Writes what the gate serves, and the requests that it sends."""
    with files.whole_folder(CANDIDATE) as draft:
        lay_out(draft / "repository")
        copy_borrowed(pipeline, layout, draft / "repository")
        golden.save(draft / "questions.npz", [*pipeline.recipe.golden(made), *more])


def copy_borrowed(pipeline: Pipeline, layout: Layout, repository: Path) -> None:
    for model in pipeline.recipe.list_borrowed(layout.engine):
        shutil.copytree(live.REPOSITORY / model, repository / model)  # as in live.place


def judge_candidate(layout: Layout, pipeline: Pipeline, made: Workspace) -> list[Answer]:
    """Judges the golden ones of the answers that the gate got."""
    answers: list[Answer] = golden.load(CANDIDATE / "answers.npz")
    agreement = pipeline.recipe.judge(made, answers[: len(pipeline.recipe.golden(made))])
    bound = gate.read_bound(_reference(made, layout.engine), precision_of(made, layout.engine))
    gate.judge("ensemble", agreement, gate.for_the_ensemble(bound, agreement.pictures))
    return answers
