"""Image files -> what is where in them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bundle_serving import agreement, golden
from bundle_serving.agreement import Agreement
from bundle_serving.detection import BOX
from bundle_serving.infer import Answer
from scripts.base import console
from scripts.base.paths import ROOT
from scripts.recipes import drawing, pbtxt
from scripts.recipes.finding import Finds
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count, Part
from scripts.recipes.pbtxt import Step, Tensor, share
from scripts.recipes.pictures import UNTRAINED, best, labels_of
from scripts.recipes.recipe import Contents, Export, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.detection import ANCHORS
from scripts.steps.detector_source import Detector
from scripts.steps.manifest import EXPECTED
from scripts.steps.shapes import of_pixels
from scripts.steps.workspace import Workspace

WARM = ROOT / "model_repository" / "detection_preprocessing" / "warmup" / "mug.jpg"

SIZE = Tensor("SIZE", "INT64", [2])
BOXES = Tensor("BOXES", "FP32", [-1, BOX])
LABELS = Tensor("LABELS", "STRING", [-1])
SCORES = Tensor("SCORES", "FP32", [-1])

Share = Annotated[float, Field(ge=0, le=1)]


class Boxes(Part):
    """Which of them count."""

    threshold: Share
    overlap: Share
    candidates: Count
    most: Count


class Detection(Finds):
    """An image file -> boxes, each with a label and a score."""

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

    def export(self, settings: Settings, engine: Engine) -> Export:
        rules = self.boxes.model_dump()
        return self.of_torchvision("detection", Detector, settings, engine, boxes=rules)

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
    return Tensor(name, "FP32", [3, recipe.side, recipe.side])


def _rows(name: str, recipe: Detection) -> Tensor:
    return Tensor(name, "FP32", [recipe.anchors, BOX + recipe.classes])


def preprocessing(recipe: Detection) -> str:
    return pbtxt.program(
        "The bytes of an image file -> pixels from 0 to 255, squashed into a square, not rounded;"
        " and the\npicture's height and width.",
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
