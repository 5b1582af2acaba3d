"""What pipelines that classify pictures have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.infer import Question
from scripts.artefacts.manifest import EXPECTED
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.evaluation.figures import TOP
from scripts.evaluation.labelled import Item, Labelled, read_files
from scripts.recipes.asking import Asked, Server, about_pictures
from scripts.recipes.configs import LABELS
from scripts.recipes.recipe import Recipe
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Label

UNTRAINED = " (untrained weights)"


class OfPictures(Recipe):
    """Takes the bytes of an image file."""

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        return about_pictures(server, self.ensemble, asked, environment)

    def question(self, source: bytes) -> Question:
        return {"INPUT": np.frombuffer(source, np.uint8)[None]}

    def golden(self, made: Workspace) -> list[Question]:
        return [self.question(path.read_bytes()) for path in made.pictures]

    def expect_scores(self, made: Workspace) -> NDArray[Any]:
        """What was asked of the original from the files on, if anything was; else the reference's
        last rows, which belong to the golden pictures."""
        scores: NDArray[Any] = np.load(self._scores_file(made))["scores"]
        return scores[-len(made.pictures) :]

    def _scores_file(self, made: Workspace) -> Path:
        of_files = made.onnx / EXPECTED
        return of_files if of_files.exists() else made.onnx / "reference.npz"

    def read_labelled(self, path: Path) -> Labelled:
        from bundle_client.sources import PICTURES

        if self.reading == "multi-label":
            raise UserError(
                f"several labels of {self.ensemble} may be right, and EVAL has one a picture",
                "omit EVAL",
            )
        return read_files(path, PICTURES.has)

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        return asked.client.classify(item.source, TOP).labels


def require_pillow(settings: Settings, what: str) -> None:
    """That the main pipeline's preprocessing, which this one uses, is there."""
    if settings.preprocess == "dali":
        raise UserError(
            f"{what} decodes pictures on the CPU, but the server runs with PREPROCESS=dali",
            "serve with PREPROCESS=python: make up PREPROCESS=python",
        )


def labels_of(made: Workspace) -> str:
    """One label per line. Untrained weights are marked in the label, so every client shows it."""
    mark = UNTRAINED if made.manifest.untrained else ""
    known = (made.onnx / LABELS).read_text().splitlines()
    return "".join(f"{label}{mark}\n" for label in known)
