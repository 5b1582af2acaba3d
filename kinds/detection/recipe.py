"""Image files -> what is where in them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from bundle_serving.agreement import Agreement
from bundle_serving.infer import Answer
from bundle_serving.protocol import golden
from kinds.detection.detr.export import Detr
from kinds.detection.export import ANCHORS, Detector
from kinds.detection.mean_precision import Coco
from kinds.detection.serving.agreement_of_boxes import INDEPENDENT_DETECTION, compare_answers
from kinds.detection.serving.detection import BOX, EACH, INDEPENDENT, LIKELIEST
from scripts.artefacts.manifest import EXPECTED
from scripts.artefacts.shapes import of_pixels
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs, drawing
from scripts.recipes.layout import Engine, Layout
from scripts.recipes.parts import Count
from scripts.recipes.pictures import TORCHVISION, UNTRAINED, Finds, labels_of
from scripts.recipes.recipe import Contents, Export, Part
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image

    from bundle_client import Client, Detected

EXPORT = Step("kinds.detection.export")
EXPORT_DETR = Step("kinds.detection.detr.export", layers=("hub",))

RULES = "rules.json"  # of the boxes that count
LABELS = "LABELS"

# Of a folder's detector, until it is exported.
NOT_KNOWN = EACH

Share = Annotated[float, Field(ge=0, le=1)]


class Boxes(Part):
    """Which of them count."""

    threshold: Share
    overlap: Share
    candidates: Count
    most: Count
    labels: Literal["each", "likeliest", "independent"] = "each"


class Detection(Finds):
    """An image file -> boxes, each with a label and a score: by one of torchvision's networks, or,
    where `source` is a folder, by the detector of transformers in it."""

    kind: Literal["detection"]
    # Left out: as the models' configs say. What is served follows the network.
    classes: Count | None = None
    anchors: Count | None = None
    boxes: Boxes

    example: ClassVar[str] = "detection.yaml"
    head: ClassVar[str] = "# Pictures -> what is where in them: `make detect MODEL={name} IMG=…`.\n"

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        if self.of_folder:
            _set_levels(member)
        rows = [self.anchors, BOX + self.classes] if self.anchors and self.classes else []
        self._set_sizes(member, self.side, rows)

    def _set_sizes(self, member: Any, side: int, rows: Sequence[int]) -> None:
        pixels = [3, side, side]
        sizes = {"PIXELS": pixels, "input": pixels, "output": rows, "ROWS": rows}
        configs.set_dims(member, sizes)
        if member.name == self.models.postprocessing:
            configs.set_parameters(member, side=side)

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        return {
            self.models.preprocessing: {"transform.json": self.transform(made, layout)},
            self.models.postprocessing: {
                ANCHORS: made.onnx / ANCHORS,
                RULES: json.dumps(self.boxes.model_dump(), indent=2) + "\n",
                configs.LABELS: labels_of(made),
            },
        }

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        has_share = super().fit(member, made, layout)
        network = self.network_model(layout.engine)
        if not has_share and member.name not in (network, self.models.postprocessing):
            return False
        rows = [len(np.load(made.onnx / ANCHORS)), BOX + made.manifest.onnx["classes"]]
        self._set_sizes(member, made.manifest.transform["crop"], rows)
        return True

    @property
    def of_folder(self) -> bool:
        return not self.source.startswith(TORCHVISION)

    @property
    def settings(self) -> tuple[str, ...]:
        of_folder = (Settings.weights.name, Settings.samples.name)
        return of_folder if self.of_folder else super().settings

    def deciding(self) -> tuple[str, ...]:
        return (Settings.weights.name,) if self.of_folder else super().deciding()

    def defaults(self) -> dict[str, str]:
        return {Settings.weights.name: str(self.path_beside(self.source))} if self.of_folder else {}

    def export(self, settings: Settings, engine: Engine) -> Export:
        if self.of_folder:
            samples = settings.photos("SAMPLES")
            spec = Detr(Path(settings.weights), self.side, self.boxes.threshold, samples)
            as_before = Settings.weights.name not in settings.given
            return Export(EXPORT_DETR, spec, as_before)
        rules = self.boxes.model_dump(exclude={"labels"})
        return self.of_torchvision(EXPORT, Detector, settings, engine, boxes=rules)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        known = self.boxes.labels
        if self.of_folder and known not in (NOT_KNOWN, found := _labels(made)):
            raise UserError(
                f"labels of {made.manifest.describe()} are {found}, and the pipeline's {known}",
                "give it a pipeline of its own: make add-model NAME=…",
            )

    def as_found(self, made: Workspace) -> Self:
        found, queries = made.manifest.onnx, len(np.load(made.onnx / ANCHORS))
        most = {"candidates": found["most"], "most": found["most"]}
        boxes = self.boxes.model_copy(update=most | {"labels": _labels(made)})
        update = {"classes": found["classes"], "anchors": queries, "boxes": boxes}
        return self.model_copy(update=update)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return of_pixels("input", self.side, self.batch.optimal, self.most)

    def find(self, client: Client, file: bytes, top: int | None) -> Detected:
        found = client.detect(file, self.ensemble)
        return replace(found, boxes=found.boxes[:top])

    def draw(self, picture: Image, found: Detected) -> None:
        drawing.boxes(picture, found.boxes)

    def read_apart(self, path: Path, made: Workspace) -> Coco:
        return Coco.read(path, self.name_classes(made), self.ensemble)

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        mark = (UNTRAINED if made.manifest.untrained else "").encode()
        expected = [
            {**each, LABELS: np.char.add(each[LABELS], mark)}
            for each in golden.load(made.onnx / EXPECTED)
        ]
        return compare_answers(expected, answers)

    def gist(self, answer: Answer) -> Hashable:
        """The label of the best box."""
        return bytes(next(iter(answer[LABELS][0]), b""))


def _labels(made: Workspace) -> str:
    """Of a detector of transformers: a key of a recipe's `boxes`."""
    answers = made.manifest.onnx["answers"]
    return INDEPENDENT if answers == INDEPENDENT_DETECTION else LIKELIEST


def _set_levels(member: Any) -> None:
    """That pixels are whole levels, from 0 to 255."""
    for tensor in (*member.input, *member.output):
        if tensor.name in ("PIXELS", "input"):
            configs.set_type(tensor, "UINT8")
    for warm in member.model_warmup:
        if "input" in warm.inputs:
            configs.set_type(warm.inputs["input"], "UINT8")
