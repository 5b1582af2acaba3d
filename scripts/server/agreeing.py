"""What a client is answered, compared with the original network."""

import shlex
from pathlib import Path

import numpy as np

from bundle_serving.agreement import Agreement
from scripts.artefacts.workspace import Workspace
from scripts.base import console
from scripts.base.errors import UserError
from scripts.base.paths import expand
from scripts.recipes.asking import ask_tensors
from scripts.recipes.image import Image
from scripts.recipes.pictures import labels_of
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.recipe import Recipe
from scripts.server import ask
from scripts.server.served import find_served_version
from scripts.stacks.state import State
from scripts.steps import gate

# The door gives no more labels for one picture.
MOST_LABELS = 1000

Sample = tuple[Path, str]


def require(pipeline: Pipeline, server: State) -> None:
    """Through the whole pipeline, on the requests of its check."""
    recipe, version = pipeline.recipe, find_served_version(pipeline)
    made = version.workspace
    if isinstance(recipe, Image):
        found = _compare_labels(recipe, made, server)
    else:
        uncounted = server.http.uncounted_headers
        questions = recipe.golden(made)
        answers = ask_tensors(server.http, recipe.ensemble, questions, uncounted)
        found = recipe.judge(made, [*answers])
    bound = gate.find_served_bound(made.onnx, version.precision, found.pictures)
    console.note(f"answers as {version.workspace.manifest.network} itself: {found}")
    if not found.within(bound):
        raise UserError(
            f"the server answers otherwise than the network itself ({found}; {bound})",
            f"nothing was added; {_name_causes(recipe, server)}please report this as a bug",
        )


def _name_causes(recipe: Recipe, server: State) -> str:
    """A network for small pictures sees that large ones are decoded at a reduced size."""
    if not isinstance(recipe, Image):  # whose precision is its own
        return ""
    reduced = server.settings_at_start.decode == "reduced"
    return f"try {'DECODE=full, or ' if reduced else ''}PRECISION=fp32, or "


def _compare_labels(recipe: Image, made: Workspace, server: State) -> Agreement:
    """Labels and probabilities, as a client gets them."""
    names = labels_of(made).splitlines()
    answered = np.full((len(made.pictures), len(names)), np.nan, np.float32)
    with ask.uncounted_client(server.http, recipe.ensemble) as client:
        for row, path in zip(answered, made.pictures, strict=True):
            for label in client.classify(path, min(len(names), MOST_LABELS)).labels:
                if label.label != names[label.index]:
                    raise UserError(
                        f"the server calls class {label.index} {label.label}, not "
                        f"{names[label.index]}",
                        "nothing was added; please report this as a bug",
                    )
                row[label.index] = label.probability
    return recipe.compare_known(made, answered)


def samples(text: str) -> list[Sample]:
    """SAMPLE=photo.jpg=robin, or several; a label with spaces needs no quotes where it is alone."""
    if alone := _sample(text):
        return [alone]
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed
        words = [text]
    found = []
    for word in words:
        if not (one := _sample(word)):
            raise UserError(
                f"SAMPLE={word} does not name a picture and what it shows",
                "for example: SAMPLE=photo.jpg=robin",
            )
        found.append(one)
    return found


def _sample(word: str) -> Sample | None:
    name, _, label = word.rpartition("=")
    path = expand(name)
    return (path, label) if name and label and path.is_file() else None


def require_shown(
    pipeline: Pipeline, server: State, wanted: list[Sample], so: str = "nothing was added"
) -> None:
    """The user's own word of what their pictures show: only that can tell whether pictures are
    prepared as the network was trained."""

    with ask.uncounted_client(server.http, pipeline.ensemble) as client:
        for path, label in wanted:
            first = client.classify(path, top=1).labels[0]
            if first.label != label:
                raise UserError(
                    f"{path.name} is {first.label} ({first.probability:.0%}) to this network, not "
                    f"{label}",
                    f"{so}; check LABELS=, and PICTURES= against its training",
                )
