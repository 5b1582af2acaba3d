"""What pipelines that take pictures have in common, and those that find what is where in them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.infer import Question
from scripts.artefacts.manifest import EXPECTED, OfTorchvision, labels_beside
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.evaluation.figures import TOP
from scripts.evaluation.labelled import Item, Labelled, read_files
from scripts.recipes import configs, drawing
from scripts.recipes.asking import Asked, Server, about_files, about_pictures
from scripts.recipes.configs import LABELS
from scripts.recipes.layout import CPU, Engine, Layout
from scripts.recipes.parts import Count, ThreeSteps
from scripts.recipes.recipe import Export, Recipe
from scripts.settings import arguments
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image

    from bundle_client import Client, Detected, Label, Segmented, Source

TORCHVISION = "torchvision/"
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
                "do without: EVAL=none",
            )
        return read_files(path, PICTURES.has)

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        return asked.client.classify(item.source, TOP).labels


class Finds(ThreeSteps, OfPictures):
    """What is where, by one of torchvision's networks."""

    source: str
    weights: str = "default"
    side: Count

    # It names no class for the whole picture.
    read_labelled = Recipe.read_labelled

    def transform(self, made: Workspace, layout: Layout, **more: Any) -> str:
        """Decoded in full: from fewer pixels, something else is found."""
        from bundle_serving.pictures import Transform  # which loads Pillow

        megapixels = layout.decoding.max_megapixels
        how = Transform(**made.manifest.transform, decode="full", max_megapixels=megapixels, **more)
        return how.dump()

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if member.name == self.models.preprocessing:
            configs.set_share(member, layout.preprocessing)
        elif layout.engine is CPU and member.name == self.network_model(CPU):
            configs.set_share(member, layout.network)
        else:
            return False
        return True

    def of_torchvision(
        self, step: Step, kind: type[OfTorchvision], settings: Settings, engine: Engine, **more: Any
    ) -> Export:
        weights = str(settings.value(self.setting)) if self.setting else self.weights
        arch = self.source.removeprefix(TORCHVISION)
        spec = kind(arch, weights, engine.export, labels_beside(weights), **more)
        return Export(step, spec, self.setting not in settings.given)

    @abstractmethod
    def find(self, client: Client, file: bytes, top: int | None) -> Detected | Segmented:
        """What is in a picture; of that only the `top` first."""

    @abstractmethod
    def draw(self, picture: Image, found: Any) -> None:
        """What was found, into the picture."""

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client.sources import PICTURES, name_in_errors, name_of, read

        given = arguments.load(environment)
        top = given.top if environment.get("TOP") else None

        def find(client: Client, source: Source) -> Detected | Segmented:
            with name_in_errors(source):
                file = read(source)
                found = replace(self.find(client, file, top), source=name_of(source))
                if given.out:
                    drawing.save(file, given.out, lambda picture: self.draw(picture, found))
                return found

        return about_files(server, asked, environment, PICTURES, find)

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        drawing.require(asked, arguments.load(environment).out)


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
