"""Pixels -> the kind of place they show."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bundle_serving.infer import Answer, Question
from scripts.recipes import pbtxt
from scripts.recipes.asking import about_files
from scripts.recipes.layout import Engine, Layout
from scripts.recipes.parts import Batch, Channels, Count, Instances, Models, Part
from scripts.recipes.pbtxt import Step, Tensor
from scripts.recipes.recipe import Contents, Export, Recipe, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.places import Checkpoint, categories_beside
from scripts.steps.shapes import of_pixels
from scripts.steps.workspace import Workspace

if TYPE_CHECKING:
    from bundle_client import Client, Result, Source

ANSWERS = "post_output"


class Squares(Part):
    """How pixels are turned into what the network was trained on."""

    side: Count
    mean: Channels
    std: Channels


class Places(Recipe):
    """Pixels, height by width by 3 -> the likeliest classes."""

    kind: Literal["places"]
    models: Models
    source: str
    weights: str = ""
    classes: Count
    answers: Count
    pictures: Squares
    batch: Batch
    instances: Instances

    example: ClassVar[str] = "places.yaml"

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {"preprocess": models.preprocessing, "postprocess": models.postprocessing}

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.preprocessing, self.models.postprocessing]

    def network_model(self, engine: Engine) -> str:
        return self.models.network

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        return {self.models.postprocessing: {"labels.txt": made.onnx / "labels.txt"}}

    def label_lines(self, made: Workspace, repository: Path) -> str:
        return (made.onnx / "labels.txt").read_text()

    def export(self, settings: Settings, engine: Engine) -> Export:
        weights = str(settings.value(self.setting)) if self.override(settings) else self.weights
        spec = Checkpoint(
            self.source,
            weights,
            self.classes,
            self.pictures.model_dump(mode="json"),
            engine.export,
            categories_beside(weights),
        )
        return Export("places", spec.words, spec, self.setting not in settings.given)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return of_pixels("input_0", self.pictures.side, self.batch.optimal, self.batch.max)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Result
        from bundle_client.settings import MAX_BYTES, TIMEOUT_S
        from bundle_client.sources import PICTURES, name_of, named, read

        top = arguments.load(environment).top

        def place(client: Client, source: Source) -> Result:
            with named(source):
                pixels = decoded(read(source, MAX_BYTES, TIMEOUT_S))
                began = time.perf_counter()
                found = client.place(pixels, self.ensemble)[:top]
                return Result(name_of(source), found, (time.perf_counter() - began) * 1e3)

        return about_files(server, asked, environment, PICTURES, place)

    def question(self, source: bytes) -> Question:
        return {"INPUT": decoded(source).astype(np.float32)[None]}

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row = np.full(self.classes, np.nan, np.float32)
        for entry in answer["postprocess_result"][0]:
            probability, number, _ = entry.decode().split(":", 2)
            row[int(number)] = float(probability)
        return row


# The network sees 256x256. Sent as floats, more would exceed the size of a request.
LARGEST = (2048, 2048)


def decoded(file: bytes) -> NDArray[np.uint8]:
    from PIL import Image, ImageOps

    from bundle_client import SourceError

    try:
        with Image.open(io.BytesIO(file)) as image:
            whole = ImageOps.exif_transpose(image).convert("RGB")
            whole.thumbnail(LARGEST)
            return np.asarray(whole)
    except OSError:
        raise SourceError("not a readable picture", "use another") from None


def configs(recipe: Places) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.preprocessing}/config.pbtxt": preprocessing(recipe),
        f"{models.preprocessing}/1/squares.json": squares(recipe),
        f"{models.network}/config.pbtxt": network_on_gpu(recipe),
        f"{models.network}/configs/cpu.pbtxt": network(recipe),
        f"{models.postprocessing}/config.pbtxt": postprocessing(recipe),
        f"{models.ensemble}/config.pbtxt": ensemble(recipe),
    }


def squares(recipe: Places) -> str:
    return json.dumps(recipe.pictures.model_dump(), indent=2) + "\n"


def _square(name: str, recipe: Places) -> Tensor:
    return Tensor(name, "FP32", [3, recipe.pictures.side, recipe.pictures.side])


def _scores(name: str, recipe: Places) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Places) -> str:
    ragged = "pictures of different sizes share a batch"
    return pbtxt.program(
        "Pixels (height, width, 3; from 0 to 255) -> the network's input.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [Tensor("pre_input", "FP32", [-1, -1, -1], ragged=ragged)],
        [_square("pre_output", recipe)],
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        pbtxt.warmup("black", pbtxt.zeros(Tensor("pre_input", "FP32", [8, 8, 3]))),
    )


def network(recipe: Places) -> str:
    return pbtxt.onnx(
        "The network without a GPU. Runs like resnet50_onnx.",
        recipe.models.network,
        recipe.batch.max,
        _signature(recipe),
        recipe.instances.network,
        pbtxt.warmup("grey", pbtxt.zeros(_square("input_0", recipe))),
        threads=2,
    )


def network_on_gpu(recipe: Places) -> str:
    return pbtxt.plan(
        "The network on a GPU: a TensorRT plan, pixels -> scores.",
        recipe.models.network,
        recipe.batch,
        _signature(recipe),
        recipe.instances.network_on_gpu,
        pbtxt.warmup("grey", pbtxt.zeros(_square("input_0", recipe))),
    )


def _signature(recipe: Places) -> tuple[str, str]:
    taken, given = _square("input_0", recipe), _scores("output_0", recipe)
    return pbtxt.picture_network(taken, given)


def postprocessing(recipe: Places) -> str:
    scores = _scores("post_input", recipe)
    return pbtxt.program(
        "The network's scores -> the likeliest classes, each as probability:number:name.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [scores],
        [Tensor(ANSWERS, "STRING", [-1])],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("answers", str(recipe.answers)),
    )


def ensemble(recipe: Places) -> str:
    models = recipe.models
    return pbtxt.ensemble(
        "Pixels (height, width, 3; from 0 to 255) -> the likeliest classes.",
        models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "FP32", [-1, -1, -1]),
        [Tensor("postprocess_result", "STRING", [-1])],
        Step(models.preprocessing, {"pre_input": "INPUT"}, {"pre_output": "square"}),
        Step(models.network, {"input_0": "square"}, {"output_0": "scores"}),
        Step(models.postprocessing, {"post_input": "scores"}, {ANSWERS: "postprocess_result"}),
    )
