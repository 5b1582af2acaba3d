"""A step: a module that a stack runs in one of its environments.

stack.run_step(Step("kinds.KIND.export"), "--out", made.onnx)
"""

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from scripts.base.errors import AlreadyReported
from scripts.base.paths import ROOT


class Place(Enum):
    """Whose packages a step needs."""

    EXPORT = auto()  # PyTorch, and what checks a network
    SERVER = auto()  # the server's, to try what it would do
    ADOPT = auto()  # the same, and what reads ONNX files
    PLAN = auto()  # TensorRT's builder


@dataclass(frozen=True)
class Step:
    module: str
    place: Place = Place.EXPORT
    layers: tuple[str, ...] = ()  # from requirements/, what that place lacks: it runs here instead

    def run_here(self, *arguments: str | Path) -> None:
        """In the image that this runs in, which has the packages."""
        command = [sys.executable, "-m", self.module, *arguments]
        if code := subprocess.run(command, cwd=ROOT).returncode:
            raise AlreadyReported(code)


EXPORT = Step("scripts.steps.export")
ADOPT = Step("scripts.steps.adopt", Place.ADOPT)
REFERENCE = Step("scripts.steps.reference", Place.ADOPT)
REFERENCE_TORCH = Step("scripts.steps.reference_torch")
TRY_PICTURES = Step("scripts.steps.try_pictures", Place.ADOPT)
QUANTISE = Step("scripts.steps.quantise")
ENGINE = Step("scripts.steps.engine", Place.SERVER)
TRY_POST = Step("scripts.steps.try_post", Place.SERVER)
GATE = Step("scripts.steps.gate", Place.SERVER)
COMPLETE = Step("scripts.steps.complete", Place.SERVER)
BUILD_PLAN = Step("scripts.steps.plan", Place.PLAN)
