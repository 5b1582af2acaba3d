"""Functions of the user's own in the place of a step: pre.py before the network, and post.py after
it. No Triton here.

    def preprocess(picture):    # PIL.Image, RGB, upright -> uint8 [height, width, 3]
    def postprocess(scores):    # float32 [classes] -> the probability of each

A ValueError of preprocess refuses the picture; anything else is a fault of the program.
"""

import sys
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.scores import READINGS, Reading

BEFORE, AFTER = "pre.py", "post.py"
FUNCTIONS = {BEFORE: "preprocess", AFTER: "postprocess"}
PACKAGES = "packages"  # the folder with what they import, beside them
MOST_CHARACTERS = 300


class StepFault(Exception):
    """A program of the user's is at fault; the message is the cause and the remedy."""


class Refused(Exception):
    """It says that this picture will not do, and why."""


def use_packages(folder: str) -> None:
    """Before those of this environment, which in a server are others, and elsewhere perhaps in
    other versions."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
        sys.dont_write_bytecode = True  # the folder is as it was published


@cache
def _load(text: str, name: str, packages: str) -> Callable[[Any], Any]:
    use_packages(packages)
    module, wanted = ModuleType(name.removesuffix(".py")), FUNCTIONS[name]
    try:
        exec(compile(text, name, "exec"), module.__dict__)
    except (Exception, SystemExit) as fault:
        raise _explain(name, fault) from None
    function = getattr(module, wanted, None)
    if not callable(function):
        raise StepFault(f"{name} has no function {wanted}; call yours {wanted}")
    return function  # type: ignore[no-any-return]


def prepare(text: str, packages: str, picture: Any, sides: tuple[int, int]) -> NDArray[np.uint8]:
    """A picture of Pillow's -> uint8 [height, width, 3]."""
    function = _load(text, BEFORE, packages)
    try:
        found = np.asarray(function(picture))
    except ValueError as fault:
        raise Refused(one_line(fault)) from None
    except Exception as fault:
        raise _explain(BEFORE, fault) from None
    if found.ndim == 2:
        found = np.repeat(found[:, :, None], 3, axis=2)
    if found.dtype != np.uint8 or found.shape != (*sides, 3):
        raise StepFault(
            f"preprocess in {BEFORE} gave {found.dtype} {[*found.shape]}; give uint8 "
            f"{[*sides, 3]}: what PICTURES says of mean and std is done inside the network"
        )
    return found


def read_by(text: str, packages: str, scores: Any) -> NDArray[np.float32]:
    """Scores [batch, classes] -> probabilities of the same shape."""
    function = _load(text, AFTER, packages)
    given = np.asarray(scores, np.float32)
    rows = [_read_row(function, row) for row in given]
    return np.stack(rows) if rows else given


def _read_row(function: Callable[[Any], Any], scores: NDArray[np.float32]) -> NDArray[np.float32]:
    try:
        found = np.asarray(function(scores.copy()), np.float32)
    except Exception as fault:
        raise _explain(AFTER, fault) from None
    if found.shape != scores.shape:
        raise StepFault(
            f"postprocess in {AFTER} gave {[*found.shape]}; give a probability for each of the "
            f"{len(scores)} classes"
        )
    if not (np.isfinite(found).all() and found.min() >= 0 and found.max() <= 1 + 1e-5):
        raise StepFault(f"postprocess in {AFTER} gave what is no probability; give 0 to 1")
    return found


def find_reading(folder: Path, answers: str) -> Reading:
    """Of a model's version: its own, or the usual one."""
    own = folder / AFTER
    if not own.exists():
        return READINGS[answers]
    return partial(read_by, own.read_text(), packages_beside(folder))


def packages_beside(folder: Path) -> str:
    return str(folder / PACKAGES) if (folder / PACKAGES).is_dir() else ""


def _explain(name: str, fault: BaseException) -> StepFault:
    return StepFault(f"{name}{find_line(name, fault)}: {one_line(fault)}; correct it")


def one_line(fault: BaseException) -> str:
    message = " ".join(str(fault).split())[:MOST_CHARACTERS]
    return f"{type(fault).__name__}: {message}" if message else type(fault).__name__


def find_line(file: str, fault: BaseException) -> str:
    """Where in this file, if that is known."""
    if isinstance(fault, SyntaxError):
        found = [fault.lineno]
    else:
        frames = traceback.extract_tb(fault.__traceback__)
        found = [each.lineno for each in frames if each.filename == file]
    return f", line {found[-1]}" if found and found[-1] else ""
