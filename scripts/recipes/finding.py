"""What pipelines that say what is where in a picture have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import labels_beside
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.recipes import configs, drawing
from scripts.recipes.asking import Server, about_files
from scripts.recipes.layout import CPU, Engine, Layout
from scripts.recipes.parts import Count
from scripts.recipes.pictures import OfPictures
from scripts.recipes.recipe import Export, Recipe
from scripts.recipes.three_steps import ThreeSteps
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.fine_tuned import FineTuned

if TYPE_CHECKING:
    from PIL.Image import Image

    from bundle_client import Client, Detected, Segmented, Source

TORCHVISION = "torchvision/"


class Finds(ThreeSteps, OfPictures):
    """By one of torchvision's networks."""

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
        self, step: Step, kind: type[FineTuned], settings: Settings, engine: Engine, **more: Any
    ) -> Export:
        weights = str(settings.value(self.setting)) if self.setting else self.weights
        arch = self.source.removeprefix(TORCHVISION)
        spec = kind(arch, weights, engine.export, labels_beside(weights), **more)
        return Export(step, as_words(spec), spec, self.setting not in settings.given)

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
