"""Labelled photos of the user's, as steps take them: to choose a precision, and to find out how a
network wants its pictures where nothing else says it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import external_data, labels_for, lines_of
from scripts.artefacts.step import TRY_PICTURES
from scripts.artefacts.workspace import Workspace
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.labelled import find_folder, match_classes
from scripts.evaluation.scores import LEAST_RIGHT, reorder
from scripts.recipes.image import Image
from scripts.recipes.pipelines import Pipeline
from scripts.repository import custom, evaluations
from scripts.settings import arguments
from scripts.stacks.stack import Stack
from scripts.steps.engine import Labels

MOST_JUDGED = 500  # a minute, with a network of 25 million weights on two cores
MOST_TRIED = 100  # in each way
SHOWN = 3


@contextmanager
def hand_over(items: Sequence[Any]) -> Iterator[Path]:
    """A folder for a step, with the items that it is asked about. What a killed command left of it,
    `make prune` removes."""
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "build", prefix=".eval", suffix=".tmp") as temporary:
        (Path(temporary) / "items.json").write_text(json.dumps(items))
        yield Path(temporary)


def _sample(
    pipeline: Pipeline, data: Path, labels: Sequence[str], most: int
) -> tuple[Path, list[tuple[str, int]]]:
    """A folder with that many of them, spread over all; their names in it, and their classes."""
    labelled = pipeline.recipe.read_labelled(data)
    truth = match_classes(labelled, labels, pipeline.name)
    places = np.unique(np.linspace(0, len(truth) - 1, most).astype(int))
    folder, names = find_folder([labelled.items[place] for place in places])
    return folder, [*zip(names, truth[places].tolist(), strict=True)]


@contextmanager
def find_labels(pipeline: Pipeline, made: Workspace, most_drop: float) -> Iterator[Labels | None]:
    """To choose a precision. None where there is none, or where classes are not what it has."""
    recipe, found = pipeline.recipe, None
    try:
        data = evaluations.find_data(pipeline)
        if data is not None and isinstance(recipe, Image):
            found = _sample(pipeline, data, recipe.name_classes(made), MOST_JUDGED)
    except UserError as fault:
        if _are_given():
            raise
        console.note(f"labelled data is left out: {fault.cause}")
    if not found:
        yield None
        return
    folder, items = found
    # Not where a program of the user's own reads the scores, which may turn them around.
    by_program = isinstance(recipe, Image) and recipe.post
    ordered = None if by_program else evaluations.ORDERED / f"{pipeline.name}.txt"
    with hand_over([(*item, (folder / item[0]).stat().st_size) for item in items]) as out:
        yield Labels(folder, out / "items.json", made.onnx, most_drop, ordered)


def keep_given(labels: Labels | None) -> Labels | None:
    """What was named for an earlier command is no reason to check again."""
    return labels if _are_given() else None


def _are_given() -> bool:
    return arguments.load().eval_ not in ("", evaluations.WITHOUT)


def find_pictures(pipeline: Pipeline, stack: Stack) -> Pipeline:
    """With what was found; the same where it is known, or where there are no labels to try it."""
    recipe, data = pipeline.recipe, evaluations.find_data(pipeline)
    if data is None or not isinstance(recipe, Image) or recipe.answers or recipe.pre:
        return pipeline
    network = recipe.path_beside(recipe.source)
    if arguments.load().pictures or custom.find_said(network).pictures:
        return pipeline
    count = recipe.class_count
    # One line for two classes is of one number, or it had been refused.
    of = lines_of(recipe.labels_file)
    labels = labels_for(of, count, recipe.labels_file, network.name, of_one=True)
    folder, items = _sample(pipeline, data, labels, MOST_TRIED)
    given = {
        "network": network,
        "pictures": recipe.pictures.model_dump(mode="json"),
        "classes": count,
        "output": recipe.output,
        "any_size": not arguments.load().size,
        "data": tuple(external_data(network)) if network.is_file() else (),
        "labelled": folder,
    }
    with hand_over(items) as out:
        given |= {"items": out / "items.json", "out": out / "tried.json"}
        stack.run_step(TRY_PICTURES, *as_words(given))
        found: dict[str, Any] = json.loads((out / "tried.json").read_text())
    if not found["of"]:
        raise UserError(f"no picture of {data.name} can be read", "name others: EVAL=")
    for line in _tell(found, data.name, labels, pipeline.name):
        console.note(line)
    if not found["pictures"]:
        return pipeline
    pictures = recipe.pictures.model_validate(recipe.pictures.model_dump() | found["pictures"])
    return Pipeline(pipeline.name, recipe.model_copy(update={"pictures": pictures}))


def _tell(found: Mapping[str, Any], data: str, labels: Sequence[str], name: str) -> list[str]:
    of, best = found["of"], found["best"]
    ways = sorted(found["tried"].items(), key=lambda way: (-way[1], len(way[0])))[:SHOWN]
    ways.insert(0, ("as usual", found["usual"]))
    said = [f"{way}: {count / of:.0%} right" for way, count in ways]
    lines = [f"pictures, on {of} of {data}: {'; '.join(said)}"]
    if not (found["pictures"] or found["order"]):
        lines[0] += "; no other way is better beyond chance"
    if found["order"]:
        path = evaluations.ORDERED / f"{name}.txt"
        order = np.array(found["order"])
        files.write(path, "".join(f"{label}\n" for label in reorder(labels, order)))
        raise UserError(
            f"{lines[0]}; labels stand in another order than the network's classes, in which "
            f"{best / of:.0%} are right",
            f"give LABELS={path.relative_to(ROOT)}",
        )
    elif best / of < LEAST_RIGHT:
        lines.append(
            f"warning: no common way makes it right, at best {best / of:.0%}: check LABELS= and "
            "PICTURES= against its training"
        )
    return lines
