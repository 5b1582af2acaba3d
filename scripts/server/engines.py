"""The steps of a version, each run where what is there does not fit: weights -> ONNX -> engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import shapes
from scripts.recipes.pipelines import CPU, GPU, Engine, Pipeline
from scripts.repository import model_folders
from scripts.repository.model_folders import Layout
from scripts.settings.settings import Settings
from scripts.stacks.flavour import Stack
from scripts.stacks.gpu import GpuStack
from scripts.steps import engine, plan, quantise
from scripts.steps.manifest import Foreign, Wanted, why_export
from scripts.steps.workspace import Workspace

# The last outcome of each step: of a make that failed later, or of `make tune`.
CACHE = ROOT / "build" / "cache"
TIMING_CACHE = CACHE / "timing.cache"
CANDIDATE = ROOT / "build" / "candidate"


def of(stack: Stack) -> Engine:
    return GPU if isinstance(stack, GpuStack) else CPU


def make(stack: Stack, wished: Settings, layout: Layout, made: Workspace) -> None:
    """The network, made ready for the hardware of a flavour and proved there."""
    export(stack, wished, layout.pipeline, made)
    if isinstance(stack, GpuStack):
        _build_plan(stack, wished, layout.pipeline, made)
        _pass_the_gate(stack, wished, layout, made)
    else:
        prove(stack, wished, made)


def export(stack: Stack, wished: Settings, pipeline: Pipeline, made: Workspace) -> None:
    folder = wished.folder("SAMPLES")
    samples: list[str | Path] = ["--samples", folder] if folder else []
    labels: list[str | Path] = ["--labels", pipeline.labels] if pipeline.labels else []
    wanted = _wanted(stack, wished, pipeline)
    words: list[str | Path]
    if isinstance(wanted, Foreign):
        step = "adopt"
        words = ["--network", wanted.network, "--pictures", json.dumps(wanted.pictures)]
    else:
        step = "export"
        weights = wanted.weights if wanted.named else Path(wanted.weights)
        words = ["--arch", wanted.arch, "--weights", weights, "--precision", wanted.precision]
    _step(
        made.onnx,
        "export",
        lambda out: why_export(out, wanted, as_before="WEIGHTS" not in wished.given),
        lambda: stack.run_step(step, *words, *labels, *samples, "--out", made.onnx),
    )
    classes = made.manifest.onnx["classes"]
    if classes != pipeline.recipe.classes:
        raise UserError(
            f"{made.manifest.describe()} has {classes} classes, and the pipeline serves "
            f"{pipeline.recipe.classes}",
            "give it a pipeline of its own: make add-model NAME=…",
        )


def _wanted(stack: Stack, wished: Settings, pipeline: Pipeline) -> Wanted | Foreign:
    """An .onnx file in the place of weights is somebody's own network, whatever ARCH says."""
    if wished.weights.endswith(".onnx"):
        how = pipeline.recipe.pictures.model_dump(mode="json")
        return Foreign(Path(wished.weights), pipeline.labels, how)
    precision = "fp16" if of(stack) is GPU else "fp32"
    return Wanted(wished["ARCH"], wished.weights, precision, pipeline.labels)


def prove(stack: Stack, wished: Settings, made: Workspace) -> None:
    """How a CPU runs the network: with what precision, and that it answers as PyTorch does."""
    precision = wished["PRECISION"]
    if precision == "int8":
        _quantise(stack, wished.folder("CALIBRATION"), made)
    network = made.int8 if precision == "int8" else made.onnx
    _step(
        made.engine,
        "engine",
        lambda out: None if engine.fits(network, precision, out) else "not proved yet",
        lambda: stack.run_step(
            "engine", "--onnx", network, "--precision", precision, "--out", made.engine
        ),
    )


def _step(out: Path, what: str, why: Callable[[Path], str | None], run: Callable[[], None]) -> None:
    """Runs a step where its outcome does not fit, and says why; the last one that did may."""
    reason = why(out)
    if reason is None:
        return
    kept = CACHE / out.name
    if why(kept) is None:
        files.link_tree(kept, out)
        return
    console.note(f"{what}: {reason}")
    run()
    files.link_tree(out, kept)


def _quantise(stack: Stack, calibration: Path | None, made: Workspace) -> None:
    def run() -> None:
        if calibration is None:
            raise UserError(
                "PRECISION=int8 takes its scales from pictures",
                "name a folder with a few hundred photos: CALIBRATION=photos",
            )
        stack.run_step(
            "quantise", "--onnx", made.onnx, "--calibration", calibration, "--out", made.int8
        )

    _step(
        made.int8,
        "int8",
        lambda out: quantise.why_quantise(out, made.onnx, calibration),
        run,
    )


def _build_plan(stack: GpuStack, wished: Settings, pipeline: Pipeline, made: Workspace) -> None:
    crop, largest = made.manifest.transform["crop"], pipeline.recipe.batch.max
    profile = shapes.of_pixels("input", crop, int(wished["OPT_BATCH"]), largest)
    wanted = plan.identity(made.onnx, stack.gpu, stack.tensorrt(), profile)
    _step(
        made.plan,
        "plan",
        lambda out: plan.why_build(out, wanted),
        lambda: build_plan(stack, made.onnx, profile, made.plan),
    )


def build_plan(stack: GpuStack, onnx: Path, profile: Mapping[str, str], out: Path) -> None:
    words = [word for option, said in profile.items() for word in (f"--{option}", said)]
    stack.run_step("plan", "--onnx", onnx, *words, "--timing-cache", TIMING_CACHE, "--out", out)


def _pass_the_gate(stack: GpuStack, wished: Settings, layout: Layout, made: Workspace) -> None:
    """Serves the plan from a repository of its own, and asks it, before anyone else can."""

    def prove() -> None:
        console.note("accuracy gate: the plan and the whole ensemble against PyTorch")
        lay_out = partial(model_folders.lay_out, made, layout)
        prove_served(stack, wished["START_TIMEOUT"], layout, made, lay_out)

    prove_once(made.plan, f" behind {layout.decoding.step}", prove)


def prove_once(built: Path, how: str, prove: Callable[[], None]) -> None:
    """A plan that has passed the gate need not do so again."""
    plan_hash = json.loads((built / "manifest.json").read_text())["plan"]["sha256"]
    passed, asked = built / "gate.txt", plan_hash + how
    if not passed.exists() or passed.read_text() != asked:
        prove()
        files.write(passed, asked)


def prove_served(
    stack: Stack, limit: str, layout: Layout, made: Workspace, lay_out: Callable[[Path], None]
) -> dict[str, Any]:
    """The whole ensemble, on a server of its own that nobody else asks. What was seen of it."""
    precision = model_folders.precision_of(made, layout.engine)
    quantised: list[str | Path] = ["--int8", made.int8] if precision == "int8" else []
    with files.whole_folder(CANDIDATE) as draft:
        lay_out(draft / "repository")
    try:
        stack.run_step(
            "gate",
            *("--onnx", made.onnx, *quantised, "--precision", precision),
            *("--repository", CANDIDATE / "repository", "--run-dir", stack.run_dir),
            *("--ensemble", layout.pipeline.ensemble, "--network", layout.model),
            *("--config", layout.engine.config),
            *("--limit", limit, "--out", CANDIDATE / "gate.json"),
        )
        seen: dict[str, Any] = json.loads((CANDIDATE / "gate.json").read_text())
        return seen
    finally:
        shutil.rmtree(CANDIDATE, ignore_errors=True)
