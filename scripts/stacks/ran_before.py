"""The stack as seen from the container of the step `layout`: the earlier steps ran in containers
of their own and left their results in build/cache. None can be run from here, but what tries the
user's post.py."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from scripts.artefacts.gpus import Gpu
from scripts.artefacts.step import ENGINE, TRY_POST, Step
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.stacks.gpu import GpuStack


class StepsRanBefore(DockerStack):
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

    def tensorrt(self) -> str:
        return str(self._plan["identity"]["TensorRT"])

    @cached_property
    def _plan(self) -> dict[str, Any]:
        built = ROOT / "build" / "cache" / pipelines.main().ensemble / "plan" / "manifest.json"
        try:
            plan: dict[str, Any] = json.loads(built.read_text())
            return plan
        except (OSError, ValueError):
            self.run_step(ENGINE)
            raise


def steps_of(settings: Settings) -> StepsRanBefore:
    return (StepsRanBeforeOnGpu if settings.flavour == "gpu" else StepsRanBefore)(settings)
