"""What pipelines that say what is where in a picture have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import labels_beside
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.recipes import configs, drawing
from scripts.recipes.asking import Server, about_each
from scripts.recipes.layout import CPU, Engine, Layout
from scripts.recipes.parts import Count
from scripts.recipes.pictures import OfPictures
from scripts.recipes.recipe import Export, Recipe
from scripts.recipes.three_steps import ThreeSteps
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.fine_tuned import FineTuned

if TYPE_CHECKING:
    from bundle_client import Client, Source

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

    def about(
        self, server: Server, asked: Sequence[str], ask: Callable[[Client, bytes, str], str]
    ) -> int:
        """`ask`: the bytes of a picture, and its name -> what is printed of the answer."""
        from bundle_client.settings import MAX_BYTES, TIMEOUT_S
        from bundle_client.sources import PICTURES, name_in_errors, name_of, read

        def of_file(client: Client, source: Source) -> str:
            with name_in_errors(source):
                return ask(client, read(source, MAX_BYTES, TIMEOUT_S), name_of(source))

        return about_each(server, asked, PICTURES, of_file)

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        drawing.require(asked, arguments.load(environment).out)
