"""Image files -> what is where in them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from bundle_serving import agreement, golden
from bundle_serving.agreement import INDEPENDENT_DETECTION, Agreement
from bundle_serving.detection import BOX, EACH, INDEPENDENT, LIKELIEST
from bundle_serving.infer import Answer
from scripts.base import console
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import drawing, pbtxt
from scripts.recipes.finding import TORCHVISION, Finds
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count, Part
from scripts.recipes.pbtxt import Step, Tensor, share
from scripts.recipes.pictures import UNTRAINED, best, labels_of
from scripts.recipes.recipe import Contents, Export, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.detection import ANCHORS
from scripts.steps.detector_source import Detector
from scripts.steps.detr.source import Detr
from scripts.steps.manifest import EXPECTED
from scripts.steps.shapes import of_pixels
from scripts.steps.workspace import Workspace

WARM = ROOT / "model_repository" / "detection_preprocessing" / "warmup" / "mug.jpg"

SIZE = Tensor("SIZE", "INT64", [2])
BOXES = Tensor("BOXES", "FP32", [-1, BOX])
LABELS = Tensor("LABELS", "STRING", [-1])
SCORES = Tensor("SCORES", "FP32", [-1])

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
    classes: Count
    anchors: Count
    boxes: Boxes

    example: ClassVar[str] = "detection.yaml"

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {
            "detection_preprocessing": models.preprocessing,
            "detection_postprocessing": models.postprocessing,
        }

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        return {
            self.models.preprocessing: {"transform.json": self.transform(made, layout)},
            self.models.postprocessing: {
                ANCHORS: made.onnx / ANCHORS,
                pbtxt.LABELS: labels_of(made),
            },
        }

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        rows = [len(np.load(made.onnx / ANCHORS)), BOX + made.manifest.onnx["classes"]]
        if member.name == self.models.preprocessing:
            share(member, layout.preprocessing)
        elif member.name == self.network_model(layout.engine):
            member.output[0].dims[:] = rows
            if layout.engine is CPU:
                share(member, layout.network)
        elif member.name == self.models.postprocessing:
            for tensor in (member.input[0], member.model_warmup[0].inputs["ROWS"]):
                tensor.dims[:] = rows
        else:
            return False
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
        return {Settings.weights.name: str(self.beside(self.source))} if self.of_folder else {}

    def export(self, settings: Settings, engine: Engine) -> Export:
        if self.of_folder:
            samples = settings.photos("SAMPLES")
            spec = Detr(Path(settings.weights), self.side, self.boxes.threshold, samples)
            as_before = Settings.weights.name not in settings.given
            return Export("detr.export", spec.words, spec, as_before, ("hub",))
        rules = self.boxes.model_dump(exclude={"labels"})
        return self.of_torchvision("detection", Detector, settings, engine, boxes=rules)

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
        return of_pixels("input", self.side, self.batch.optimal, self.batch.max)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Client
        from bundle_client.show import boxes_as_json, boxes_as_table

        out, top = arguments.load(environment).out, best(environment)

        def ask(client: Client, file: bytes, name: str) -> str:
            found = client.detect(file, self.ensemble)
            shown = replace(found, source=name, boxes=found.boxes[:top])
            if out:
                drawing.save(file, out, lambda picture: drawing.boxes(picture, shown.boxes))
            as_json = environment.get("JSON")
            return boxes_as_json(shown) if as_json else boxes_as_table(shown, console.out)

        return self.about(server, asked, ask)

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        mark = (UNTRAINED if made.manifest.untrained else "").encode()
        expected = [
            {**each, LABELS.name: np.char.add(each[LABELS.name], mark)}
            for each in golden.load(made.onnx / EXPECTED)
        ]
        return agreement.of_boxes(expected, answers)

    def gist(self, answer: Answer) -> Hashable:
        """The label of the best box."""
        return bytes(next(iter(answer[LABELS.name][0]), b""))


def _labels(made: Workspace) -> str:
    """Of a detector of transformers: a key of a recipe's `boxes`."""
    answers = made.manifest.onnx["answers"]
    return INDEPENDENT if answers == INDEPENDENT_DETECTION else LIKELIEST


def configs(recipe: Detection) -> dict[str, str]:
    """Path in the repository -> text."""
    rules = json.dumps(recipe.boxes.model_dump(), indent=2) + "\n"
    usual = recipe.models.configs(
        preprocessing(recipe),
        network(recipe),
        network_on_gpu(recipe),
        postprocessing(recipe),
        partial(ensemble, recipe),
    )
    return usual | {f"{recipe.models.postprocessing}/1/rules.json": rules}


def _file(length: int = -1) -> Tensor:
    ragged = "image files of different lengths share a batch"
    return Tensor("FILE", "UINT8", [length], ragged=ragged)


def _pixels(name: str, recipe: Detection) -> Tensor:
    return Tensor(name, "UINT8" if recipe.of_folder else "FP32", [3, recipe.side, recipe.side])


def _rows(name: str, recipe: Detection) -> Tensor:
    return Tensor(name, "FP32", [recipe.anchors, BOX + recipe.classes])


def preprocessing(recipe: Detection) -> str:
    return pbtxt.program(
        "The bytes of an image file -> pixels from 0 to 255, squashed into a square"
        f"{'' if recipe.of_folder else ', not rounded'}; and the\npicture's height and width.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [_file()],
        [_pixels("PIXELS", recipe), SIZE],
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        pbtxt.warmup("mug", pbtxt.file(_file(WARM.stat().st_size), WARM.name)),
        pbtxt.parameter("threads", "1"),
    )


def network(recipe: Detection) -> str:
    pixels = _pixels("input", recipe)
    return pbtxt.onnx(
        "The network: pixels -> for each anchor how its box is shifted, and its scores. Runs like"
        " resnet50_onnx.",
        f"{recipe.models.network}_{CPU.ending}",
        recipe.batch.max,
        _signature(recipe),
        recipe.instances.network,
        pbtxt.warmup("black", pbtxt.zeros(pixels)),
        threads=1,
    )


def network_on_gpu(recipe: Detection) -> str:
    return pbtxt.plan(
        "The network on a GPU: a TensorRT plan, pixels -> for each anchor how its box is shifted,"
        " and its scores.",
        f"{recipe.models.network}_{GPU.ending}",
        recipe.batch,
        _signature(recipe),
        recipe.instances.network_on_gpu,
        pbtxt.warmup("black", pbtxt.zeros(_pixels("input", recipe))),
    )


def _signature(recipe: Detection) -> tuple[str, str]:
    pixels = replace(_pixels("input", recipe), format="FORMAT_NCHW")
    return pbtxt.inputs(pixels), pbtxt.outputs(_rows("output", recipe))


def postprocessing(recipe: Detection) -> str:
    rows = _rows("ROWS", recipe)
    return pbtxt.program(
        "The network's rows -> the boxes that count, in the picture's own pixels; best first.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [rows, SIZE],
        [BOXES, LABELS, SCORES],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(rows), pbtxt.zeros(SIZE)),
        pbtxt.parameter("side", str(recipe.side)),
    )


def ensemble(recipe: Detection, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: ";\nwith the network on a GPU."}[engine]
    answer = [BOXES, LABELS, SCORES]
    return pbtxt.ensemble(
        "The bytes of an image file -> boxes (left, top, right, bottom), their labels and scores"
        f"{where}",
        models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "UINT8", [-1]),
        answer,
        Step(models.preprocessing, {"FILE": "INPUT"}, {"PIXELS": "pixels", SIZE.name: "size"}),
        Step(f"{models.network}_{engine}", {"input": "pixels"}, {"output": "rows"}),
        Step(
            models.postprocessing,
            {"ROWS": "rows", SIZE.name: "size"},
            {tensor.name: tensor.name for tensor in answer},
        ),
    )
