"""The last build step of compose.yaml: turns what the earlier steps built into a version and lays
it out in the repository that the server reads. `make up` does the same itself.

    python -m scripts.commands.layout
    python -m scripts.commands.layout candidate     on a GPU, for the gate to check

Does nothing if the live version already is what is requested.
"""

import shutil
import sys
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from scripts.artefacts.gpus import Gpu
from scripts.artefacts.step import ENGINE, TRY_POST, Step
from scripts.artefacts.workspace import Workspace
from scripts.base import console, files, lock
from scripts.base.errors import UserError, run_guarded
from scripts.recipes import pipelines
from scripts.recipes.layout import Layout
from scripts.repository import model_folders
from scripts.server import engines, layouts, served, up
from scripts.server.wanted_settings import fill_from_version
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.stacks.gpu import GpuStack
from scripts.stacks.stack import Stack


def main() -> None:
    settings = Settings.load()
    if settings.from_ and settings.flavour != "gpu":  # the first step has laid it out
        return
    up.require_here(settings)
    if settings.from_:
        settings = fill_from_version(settings, pipelines.main(), served.serving(pipelines.main()))
    else:  # whatever was the main one before: the earlier steps have made this one
        pipelines.make_main(pipelines.DEFAULT)
    stack = (StepsRanBeforeOnGpu if settings.flavour == "gpu" else StepsRanBefore)(settings)
    how = layouts.layout(settings, stack.engine)
    with lock.one_at_a_time():
        if sys.argv[1:] == ["candidate"]:
            lay_out_candidate(stack, how)
        else:
            judge_candidate(how)
            up.lay_out_main(stack, settings)


def lay_out_candidate(stack: Stack, how: Layout) -> None:
    """Does nothing if the plan has passed the gate already."""
    shutil.rmtree(engines.CANDIDATE, ignore_errors=True)
    first = pipelines.main()
    engines.write_gate_words(stack, how, first, find_workspace())
    if engines.has_passed(find_workspace(), how):
        console.note("the plan has passed the gate")
        return
    lay_out = partial(model_folders.lay_out, first, find_workspace(), how)
    engines.lay_out_candidate(how, first, find_workspace(), lay_out)


def judge_candidate(how: Layout) -> None:
    """Judges the whole candidate by the gate's answers; the gate compared only the network."""
    if (engines.CANDIDATE / "answers.npz").exists():
        engines.judge_candidate(how, pipelines.main(), find_workspace())
        engines.note_passed(find_workspace(), how)
    shutil.rmtree(engines.CANDIDATE, ignore_errors=True)


def find_workspace() -> Workspace:
    """Where the earlier steps left their results."""
    return Workspace(engines.CACHE / pipelines.main().ensemble)


class StepsRanBefore(DockerStack):
    """The stack as seen from this container: the earlier steps ran in containers of their own and
    left their results in build/cache. None can be run from here, but what tries the user's
    post.py."""

    def run_step(self, step: Step, *arguments: str | Path) -> None:
        if step is TRY_POST:
            step.run_here(*arguments)
            return
        raise UserError(
            f"this needs the step {step.module}, which did not run before this one",
            "docker compose up --wait runs only export, engine and layout; use make for the rest",
        )


class StepsRanBeforeOnGpu(StepsRanBefore, GpuStack):
    """The GPU and its TensorRT are those that the plan was just built for."""

    @cached_property
    def gpus(self) -> list[Gpu]:
        return [Gpu(**self._plan["gpu"])]

    @cached_property
    def tensorrt(self) -> str:
        return str(self._plan["identity"]["TensorRT"])

    @cached_property
    def _plan(self) -> dict[str, Any]:
        built = files.read_json(find_workspace().plan / "manifest.json")
        if not built:
            self.run_step(ENGINE)  # which did not run
        return built


if __name__ == "__main__":
    sys.exit(run_guarded(main))
