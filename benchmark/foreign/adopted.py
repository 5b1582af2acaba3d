"""A case as `make add-model` takes it, below the server: recipe, conversion, checks, engine, and
what the pipeline's steps then answer."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmark.foreign.case import Array, Case
from bundle_serving.networks import network_in
from bundle_serving.onnxruntime_engine import load_engine
from bundle_serving.pictures import Transform, to_pixels
from bundle_serving.scores import READINGS
from scripts.artefacts.manifest import Foreign
from scripts.artefacts.workspace import Workspace
from scripts.base import files as written
from scripts.base import parts
from scripts.base.errors import UserError
from scripts.intake import metadata
from scripts.recipes.image import Image
from scripts.recipes.layout import CPU
from scripts.repository import custom, sources
from scripts.settings.settings import DEFAULTS, Settings
from scripts.steps import adopt, engine


@dataclass(frozen=True)
class Outcome:
    refusal: str = ""
    difference: float = 0.0  # from what is right, over all labels and pictures
    answers: str = ""
    together: bool = True

    @property
    def is_served(self) -> bool:
        return not self.refusal


def outcome(case: Case, folder: Path, files: list[bytes]) -> Outcome:
    """Any exception but a refusal is a fault of ours, and passes."""
    truth = case.make(folder)
    try:
        if case.finds:
            (kind,) = parts.find("foreign")
            found: Outcome = kind.find_outcome(case.make_settings(folder), folder, files, truth)
            return found
        recipe, made = adopt_network(case.make_settings(folder), folder)
    except UserError as fault:
        return Outcome(f"{fault.cause}; {fault.remedy}")
    difference = float(np.abs(answers(recipe, made, files) - np.stack([*map(truth, files)])).max())
    return Outcome("", difference, recipe.answers, recipe.most > 1)


def adopt_network(words: dict[str, str], folder: Path) -> tuple[Image, Workspace]:
    """By what `make add-model` calls, in one process."""
    recipe = custom.recipe("foreign", import_source(words, folder / "taken"))
    settings = Settings(DEFAULTS | recipe.defaults())
    export = recipe.export(settings, CPU)
    assert isinstance(export.spec, Foreign)
    made = Workspace(folder / "made")
    adopt.adopt(export.spec, made.onnx)
    decided = engine.decide(engine.Check(made.onnx, words.get("PRECISION", "fp32")))
    written.write(made.onnx / "engine.json", json.dumps(decided))
    return recipe.as_found(made), made


def import_source(words: dict[str, str], out: Path) -> dict[str, str]:
    if not (wanted := words.pop("FROM", "")):
        return words
    source, weights = sources.find_source(wanted), words.pop("WEIGHTS", "default")
    trusted = words.pop("TRUST", "") == "1"
    if source.network:
        return words | {"ONNX": str(source.network)}
    from scripts.steps import intake

    size = custom.size(words.get("SIZE", ""))
    out.mkdir()
    taken = intake.take(
        source.other, weights, size, "PICTURES" in words, out / "model.onnx", trusted
    )
    (out / metadata.ABOUT).write_text(json.dumps(asdict(taken)))
    return words | {"ONNX": str(out / "model.onnx")}


def answers(recipe: Image, made: Workspace, files: list[bytes]) -> Array:
    """Decoded, resized, computed and read as the served models do it, with DECODE=full: to the
    pixel, since random weights make much of a level."""
    transform = Transform(**made.manifest.transform, decode="full")
    network = load_engine(network_in(made.onnx), 1)
    pixels = (to_pixels(file, transform)[None] for file in files)
    scores = [network.only_output({"input": each}) for each in pixels]
    return READINGS[recipe.reading](np.concatenate(scores).astype(np.float32))
