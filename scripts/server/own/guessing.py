"""How a network of the user's wants pictures, found by labelled ones where nothing else says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kinds.image.recipe import Image
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import external_data, lines_of
from scripts.artefacts.step import TRY_PICTURES
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.evaluation.labelled import Item, find_folder, match_classes
from scripts.evaluation.scores import LEAST_RIGHT, reorder
from scripts.recipes.pipelines import Pipeline
from scripts.repository import custom, evaluations
from scripts.settings import arguments
from scripts.stacks.stack import Stack

MOST = 100  # of pictures, on which each way is tried
SHOWN = 3


def find_pictures(pipeline: Pipeline, stack: Stack) -> Pipeline:
    """With what was found; the same where it is known, or where there are no labels to try it."""
    recipe, data = pipeline.recipe, evaluations.find_data(pipeline)
    if data is None or not isinstance(recipe, Image) or recipe.answers or recipe.pre:
        return pipeline
    network = recipe.path_beside(recipe.source)
    if arguments.load().pictures or custom.find_pictures_beside(network):
        return pipeline
    count = recipe.class_count
    labels = lines_of(recipe.labels_file) or [f"class {number}" for number in range(count)]
    labelled = recipe.read_labelled(data)
    truth = match_classes(labelled, labels, pipeline.name)
    places = np.unique(np.linspace(0, len(truth) - 1, MOST).astype(int))
    sample = [(labelled.items[place], int(truth[place])) for place in places]
    found = _try_each(recipe, network, sample, stack)
    if not found["of"]:
        raise UserError(f"no picture of {data.name} can be read", "name others: EVAL=")
    for line in _tell(found, data.name, labels, pipeline.name):
        console.note(line)
    if not found["pictures"]:
        return pipeline
    pictures = recipe.pictures.model_validate(recipe.pictures.model_dump() | found["pictures"])
    return Pipeline(pipeline.name, recipe.model_copy(update={"pictures": pictures}))


def _try_each(
    recipe: Image, network: Path, sample: Sequence[tuple[Item, int]], stack: Stack
) -> dict[str, Any]:
    folder, names = find_folder([item for item, _ in sample])
    items = [(name, truth) for name, (_, truth) in zip(names, sample, strict=True)]
    given = {
        "network": network,
        "pictures": recipe.pictures.model_dump(mode="json"),
        "classes": recipe.class_count,
        "output": recipe.output,
        "any_size": not arguments.load().size,
        "data": tuple(external_data(network)) if network.is_file() else (),
        "labelled": folder,
    }
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(dir=ROOT / "build", prefix=".eval") as temporary:
        out = Path(temporary)
        (out / "items.json").write_text(json.dumps(items))
        given |= {"items": out / "items.json", "out": out / "tried.json"}
        stack.run_step(TRY_PICTURES, *as_words(given))
        found: dict[str, Any] = json.loads((out / "tried.json").read_text())
        return found


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
