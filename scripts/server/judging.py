"""Labelled data of the user's, as the step that chooses a precision takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import numpy as np

from kinds.image.recipe import Image
from scripts.artefacts.workspace import Workspace
from scripts.base import console
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.labelled import find_folder, match_classes
from scripts.recipes.pipelines import Pipeline
from scripts.repository import evaluations
from scripts.settings import arguments
from scripts.steps.engine import Labels

Listed: TypeAlias = tuple[str, int, int]  # name in the folder, class, size
MOST = 500  # of pictures: a minute, with a network of 25 million weights on two cores


@contextmanager
def find_labels(pipeline: Pipeline, made: Workspace, most_drop: float) -> Iterator[Labels | None]:
    """None where there is none, or where classes are not what it has."""
    try:
        found = _read(pipeline, made)
    except UserError as fault:
        if _is_given():
            raise
        console.note(f"labelled data is left out: {fault.cause}")
        found = None
    if not found:
        yield None
        return
    folder, items = found
    with TemporaryDirectory(dir=ROOT / "build", prefix=".eval") as temporary:
        path = Path(temporary) / "items.json"
        path.write_text(json.dumps(items))
        yield Labels(folder, path, made.onnx, most_drop, _find_ordered(pipeline))


def _find_ordered(pipeline: Pipeline) -> Path | None:
    """Not where a program of the user's own reads the scores, which may turn them around."""
    recipe = pipeline.recipe
    by_program = isinstance(recipe, Image) and recipe.post
    return None if by_program else evaluations.ORDERED / f"{pipeline.name}.txt"


def keep_given(labels: Labels | None) -> Labels | None:
    """What was named for an earlier command is no reason to check again."""
    return labels if _is_given() else None


def _is_given() -> bool:
    return arguments.load().eval_ not in ("", evaluations.WITHOUT)


def _read(pipeline: Pipeline, made: Workspace) -> tuple[Path, Sequence[Listed]] | None:
    recipe, data = pipeline.recipe, evaluations.find_data(pipeline)
    if data is None or not isinstance(recipe, Image):
        return None
    labelled = recipe.read_labelled(data)
    truth = match_classes(labelled, recipe.name_classes(made), pipeline.name)
    places = np.unique(np.linspace(0, len(truth) - 1, MOST).astype(int))
    items = [labelled.items[place] for place in places]
    folder, names = find_folder(items)
    sizes = (Path(item.source).stat().st_size for item in items)
    return folder, [
        (name, int(truth[place]), size)
        for name, place, size in zip(names, places, sizes, strict=True)
    ]
