"""The network made ready for the hardware of a flavour, and proved there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts import files
from scripts.bootstrap import ROOT
from scripts.errors import UserError
from scripts.host import console
from scripts.host.flavour import Stack
from scripts.host.gpu_stack import GpuStack
from scripts.host.settings import Settings
from scripts.pipeline import engine, plan, quantise
from scripts.pipeline.repository import CPU, GPU, Engine

ONNX = ROOT / "build" / "onnx"
DECISION = ROOT / "build" / "engine"
INT8 = ROOT / "build" / "int8"
PLAN = ROOT / "build" / "plan"
CANDIDATE = ROOT / "build" / "candidate"
TIMING_CACHE = ROOT / "build" / "cache" / "timing.cache"

LayOut = Callable[[Engine, Path, Path], None]


def of(stack: Stack) -> Engine:
    return GPU if isinstance(stack, GpuStack) else CPU


def make(stack: Stack, wished: Settings, lay_out: LayOut) -> Path:
    """The folder with what the engine's step made, proved against PyTorch."""
    if isinstance(stack, GpuStack):
        _build_plan(stack, wished)
        _pass_the_gate(stack, wished, lay_out)
        return PLAN
    if wished["PRECISION"] == "int8":
        _quantise(stack, wished.folder("CALIBRATION"))
    out = decision(wished)
    prove(stack, wished["PRECISION"], out)
    return out


def prove(stack: Stack, precision: str, out: Path) -> None:
    network = INT8 if precision == "int8" else ONNX
    if not engine.fits(network, precision, out):
        stack.run_step("engine", "--onnx", network, "--precision", precision, "--out", out)


def decision(wished: Settings) -> Path:
    """Where the engine's step for a CPU puts what was proved."""
    return INT8 if wished["PRECISION"] == "int8" else DECISION


def _quantise(stack: Stack, calibration: Path | None) -> None:
    reason = quantise.why_quantise(INT8, ONNX, calibration)
    if reason is None:
        return
    if calibration is None:
        raise UserError(
            f"PRECISION=int8 takes its scales from pictures ({reason})",
            "name a folder with a few hundred photos: CALIBRATION=photos",
        )
    console.note(f"int8: {reason}")
    stack.run_step("quantise", "--onnx", ONNX, "--calibration", calibration, "--out", INT8)


def _build_plan(stack: GpuStack, wished: Settings) -> None:
    opt_batch = wished["OPT_BATCH"]
    wanted = plan.identity(ONNX, stack.gpu, stack.tensorrt(), int(opt_batch))
    reason = plan.why_build(PLAN, wanted)
    if reason is None:
        return
    console.note(f"plan: {reason}")
    stack.run_step(
        "plan",
        *("--onnx", ONNX, "--opt-batch", opt_batch),
        *("--timing-cache", TIMING_CACHE, "--out", PLAN),
    )


def candidate(target: Path, lay_out: Callable[[Path], None]) -> None:
    """A repository to be tried, beside the one that is served."""
    own = shutil.ignore_patterns("model.onnx", "model.plan", "__pycache__")
    shutil.copytree(ROOT / "model_repository", target, ignore=own)
    lay_out(target)


def _pass_the_gate(stack: GpuStack, wished: Settings, lay_out: LayOut) -> None:
    """Serves the plan from a repository of its own, and asks it, before anyone else can."""
    plan_hash = json.loads((PLAN / "manifest.json").read_text())["plan"]["sha256"]
    asked = f"{plan_hash} behind {wished['PREPROCESS']}"
    passed = PLAN / "gate.txt"
    if passed.exists() and passed.read_text() == asked:
        return
    console.note("accuracy gate: the plan and the whole ensemble against PyTorch")
    with files.whole_folder(CANDIDATE) as draft:
        candidate(draft / "repository", partial(lay_out, GPU, PLAN))
    repository = CANDIDATE / "repository"
    try:
        stack.run_step(
            "gate",
            *("--onnx", ONNX, "--repository", repository),
            *("--network", GPU.model, "--config", GPU.config),
        )
    finally:
        shutil.rmtree(CANDIDATE, ignore_errors=True)
    files.write(passed, asked)
