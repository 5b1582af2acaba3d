"""Image files -> which class each of their pixels belongs to."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bundle_serving.agreement import Agreement, of_answers
from bundle_serving.infer import Answer
from bundle_serving.protocol import golden
from kinds.segmentation.export import Segmenter
from kinds.segmentation.overlaps import Masks
from scripts.artefacts.manifest import EXPECTED
from scripts.artefacts.shapes import profile
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.recipes import configs, drawing
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count
from scripts.recipes.pictures import Finds, labels_of
from scripts.recipes.recipe import Contents, Export
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image

    from bundle_client import Client, Segmented

EXPORT = Step("kinds.segmentation.export")


class Segmentation(Finds):
    """An image file -> of each pixel, the number of its class."""

    kind: Literal["segmentation"]
    longest: Count

    example: ClassVar[str] = "segmentation.yaml"

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        if member.name in (self.network_model(CPU), self.network_model(GPU)):
            member.model_warmup[0].inputs["input"].dims[:] = [3, self.side, self.side]

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if member.name == self.network_model(CPU):
            configs.set_parameters(member, most_numbers=3 * self.longest**2)
        return super().fit(member, made, layout)

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        how = self.transform(made, layout, longest=self.longest)
        return {
            self.models.preprocessing: {"transform.json": how},
            self.models.postprocessing: {configs.LABELS: labels_of(made)},
        }

    def export(self, settings: Settings, engine: Engine) -> Export:
        return self.of_torchvision(EXPORT, Segmenter, settings, engine)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """Most pictures are as photographs: four wide and three high."""
        side, longest, batch = self.side, self.longest, self.batch
        least, usual, most = (
            {"input": shape}
            for shape in (
                (1, 3, side, side),
                (batch.optimal, 3, side, side * 4 // 3),
                (self.most, 3, longest, longest),
            )
        )
        return profile(least, usual, most)

    def find(self, client: Client, file: bytes, top: int | None) -> Segmented:
        found = client.segment(file, self.ensemble)
        return replace(found, areas=found.areas[:top])

    def draw(self, picture: Image, found: Segmented) -> None:
        drawing.areas(picture, found.mask, found.areas)

    def read_apart(self, path: Path, made: Workspace) -> Masks:
        return Masks.read(path, self.name_classes(made))

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        return of_answers(golden.load(made.onnx / EXPECTED), answers)

    def gist(self, answer: Answer) -> Hashable:
        """The class with the largest share."""
        return int(answer["SHARES"][0].argmax())
