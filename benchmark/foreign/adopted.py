"""A case as `make add-model` takes it, below the server: recipe, conversion, checks, engine, and
what the pipeline's steps then answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmark.foreign.case import Array, Case
from bundle_serving.openvino_engine import Engine
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.scores import READINGS
from scripts.base.errors import UserError
from scripts.recipes.kinds.image import Image
from scripts.recipes.layout import CPU
from scripts.repository import custom
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import adopt, engine
from scripts.steps.manifest import Foreign
from scripts.steps.workspace import Workspace


@dataclass(frozen=True)
class Outcome:
    refusal: str = ""
    difference: float = 0.0  # from what is right, over all labels and pictures
    answers: str = ""
    together: bool = True

    @property
    def served(self) -> bool:
        return not self.refusal


def outcome(case: Case, folder: Path, files: list[bytes]) -> Outcome:
    """Any exception but a refusal is a fault of ours, and passes."""
    truth = case.make(folder)
    try:
        recipe, made = adopted(case.words(folder), folder)
    except UserError as fault:
        return Outcome(f"{fault.cause}; {fault.remedy}")
    rows = [answer(recipe, made, file) for file in files]
    expected = np.stack([truth(file) for file in files])
    difference = float(np.abs(np.stack(rows) - expected).max())
    return Outcome("", difference, recipe.answers, recipe.batch.max > 1)


def adopted(words: dict[str, str], folder: Path) -> tuple[Image, Workspace]:
    recipe = custom.recipe("foreign", words)
    settings = Settings(DEFAULTS | recipe.defaults())
    export = recipe.export(settings, CPU)
    assert isinstance(export.spec, Foreign)
    made = Workspace(folder / "made")
    adopt.adopt(export.spec, None, made.onnx)
    decided = engine.decide(made.onnx, "fp32")
    assert decided["precision"] == "fp32"
    return recipe.as_found(made), made


def answer(recipe: Image, made: Workspace, file: bytes) -> Array:
    """Decoded, resized, computed and read as the served models do it."""
    transform = Transform(**made.manifest.transform)
    network = Engine(made.onnx / "model.onnx", "fp32", 1)
    pixels = to_pixels(file, transform)[None]
    scores = network({"input": pixels}, ["output"])["output"]
    probabilities: Array = READINGS[recipe.reading](np.asarray(scores, np.float32))[0]
    return probabilities
