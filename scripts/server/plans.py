"""On a GPU: the network of a pipeline beside that of pictures, as a TensorRT plan that fits the
machine, proved before it is served."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from scripts.base import console, files
from scripts.recipes.image import ON_GPU
from scripts.recipes.pipelines import GPU
from scripts.repository import live, model_folders, placing
from scripts.server import engines
from scripts.stacks.gpu import GpuStack
from scripts.stacks.state import State
from scripts.steps import plan


def ensure(server: State, made: Path, model: str, shapes: Mapping[str, str], asked: str) -> None:
    """A plan of what an export made. To see whether the machine is still the same takes seconds: a
    plan that the server has loaded, and answers by, fits."""
    placed = live.REPOSITORY / model / "1"
    answers = reason_not_to_trust(f"http://{server.http}", asked) is None
    if answers and placing.stands(made, placed, ON_GPU):
        return
    stack = GpuStack(server.started_with)
    wanted = plan.identity(made, stack.gpu, stack.tensorrt(), shapes)
    built = made / "plan"
    if reason := plan.why_build(built, wanted):
        console.note(f"plan of {model}: {reason}")
        engines.build_plan(stack, made, shapes, built)
    engines.prove_once(built, "", lambda: _prove(stack, made, model))


def _prove(stack: GpuStack, made: Path, model: str) -> None:
    """Serves the network alone, from a repository of its own, and asks what PyTorch was asked."""
    console.note(f"accuracy gate: {model} against PyTorch")
    candidate = engines.CANDIDATE / "repository"
    try:
        shutil.rmtree(engines.CANDIDATE, ignore_errors=True)
        model_folders.furnish_with([model], candidate)
        placing.put(made, candidate / model / "1", ON_GPU, {})
        files.let_all_read(candidate)
        stack.run_step(
            "gate",
            *("--onnx", made, "--precision", "fp16", "--repository", candidate),
            *("--run-dir", stack.run_dir, "--network", model, "--config", GPU.config),
        )
    finally:
        shutil.rmtree(engines.CANDIDATE, ignore_errors=True)
