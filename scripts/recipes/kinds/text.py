"""Texts -> their sentiment."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving.infer import Answer, Question
from scripts.base.text import printable
from scripts.recipes import pbtxt
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Batch, Count, Instances, Models, Part
from scripts.recipes.pbtxt import Step, Tensor
from scripts.recipes.recipe import Contents, Export, Recipe, Server
from scripts.settings.settings import Settings
from scripts.steps.shapes import profile
from scripts.steps.texts.export import Classifier
from scripts.steps.texts.sources import MINILM
from scripts.steps.workspace import Workspace

QUERY = Tensor("QUERY", "STRING", [1])
# Padded to the longest text of a request, rounded up to a multiple of this.
STEP = 8
IDS = Tensor("INPUT_IDS", "INT64", [-1])
MASK = Tensor("ATTENTION_MASK", "INT64", [-1])
LABEL = Tensor("LABEL", "STRING", [1])
SCORE = Tensor("SCORE", "FP32", [1])

RECIPE_FILE = "recipe.yaml"
TOKENIZER = "tokenizer"  # the folder beside the network, written by the export


class Words(Part):
    """How texts become tokens."""

    task_prefix: str = ""
    max_seq_len: Annotated[int, Field(ge=8)]


class TextBatch(Batch):
    optimal_tokens: Count


class Text(Recipe):
    """A text -> its label and score."""

    kind: Literal["text"]
    models: Models
    source: str  # a name on the hub, or a folder with the same files
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    words: Words
    batch: TextBatch
    instances: Instances
    warmup: Annotated[str, Field(pattern=r"^[ -~]{1,100}$")]

    example: ClassVar[str] = "sentiment.yaml"
    asked_about: ClassVar[str] = "TEXT"

    @property
    def classes(self) -> int:
        return len(self.labels)

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {
            "sentiment_preprocessing": models.preprocessing,
            "sentiment_postprocessing": models.postprocessing,
        }

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.preprocessing, self.models.postprocessing]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.network}_{engine.ending}"

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        tokenizer = "tokenizer.json"
        return {self.models.preprocessing: {f"{TOKENIZER}/{tokenizer}": made.onnx / tokenizer}}

    def export(self, settings: Settings, engine: Engine) -> Export:
        source = self.override(settings) or self.source
        path = Path(source).expanduser()
        source = str(path.resolve()) if path.is_dir() else source
        spec = Classifier(source, self.words.max_seq_len, self.labels, engine.export)
        layers = ("sentiment", *(("minilm",) if source == MINILM else ()))
        return Export("texts.export", spec.words, spec, self.setting not in settings.given, layers)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """By number of texts and by length."""

        def at(texts: int, tokens: int) -> dict[str, tuple[int, int]]:
            return {tensor.name: (texts, tokens) for tensor in (IDS, MASK)}

        batch, longest = self.batch, math.ceil(self.words.max_seq_len / STEP) * STEP
        return profile(at(1, STEP), at(batch.optimal, batch.optimal_tokens), at(batch.max, longest))

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Client

        with Client(**server.known) as client:
            for judged in client.sentiment(*asked, model=self.ensemble):
                for_people = f"{printable(judged.label)}  {judged.score:.2%}"
                print(json.dumps(asdict(judged)) if environment.get("JSON") else for_people)
        return 0

    def question(self, source: bytes) -> Question:
        return {QUERY.name: np.array([[source]])}

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row = np.full(self.classes, np.nan, np.float32)
        label = answer[LABEL.name].ravel()[0].decode()
        row[self.labels.index(label)] = answer[SCORE.name].ravel()[0]
        return row


def configs(recipe: Text) -> dict[str, str]:
    """Path in the repository -> text."""
    first = recipe.models.preprocessing
    usual = recipe.models.configs(
        preprocessing(recipe),
        network(recipe),
        network_on_gpu(recipe),
        postprocessing(recipe),
        partial(ensemble, recipe),
    )
    return usual | {
        f"{first}/1/{RECIPE_FILE}": how_to_tokenise(recipe),
        f"{first}/warmup/text": serialised(recipe.warmup),
    }


def serialised(text: str) -> str:
    """Triton's format for a string in a file: four bytes of length, then the text."""
    return struct.pack("<I", len(text)).decode("ascii") + text


def how_to_tokenise(recipe: Text) -> str:
    content = {"backbone_model_name": TOKENIZER} | recipe.words.model_dump()
    return "# The tokenizer: a folder beside this file, or a hub's name.\n" + yaml.safe_dump(
        content, sort_keys=False
    )


def _scores(name: str, recipe: Text) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Text) -> str:
    return pbtxt.program(
        "A text (UTF-8) -> the network's tokens.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [QUERY],
        [IDS, MASK],
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        pbtxt.warmup("text", pbtxt.file(QUERY, "text")),
        pbtxt.parameter("recipe_file", RECIPE_FILE),
    )


def network(recipe: Text) -> str:
    return pbtxt.onnx(
        "The network: tokens -> scores. Requests of one length share a batch; none is padded to the"
        "\nlength of another. Runs like resnet50_onnx.",
        f"{recipe.models.network}_{CPU.ending}",
        recipe.batch.max,
        [pbtxt.inputs(IDS, MASK), pbtxt.outputs(_scores("SCORES", recipe))],
        recipe.instances.network,
        _warm_padding(),
        threads=1,
    )


def network_on_gpu(recipe: Text) -> str:
    return pbtxt.plan(
        "The network on a GPU: a TensorRT plan, tokens -> scores. Requests of one length share a"
        " batch.",
        f"{recipe.models.network}_{GPU.ending}",
        recipe.batch,
        (pbtxt.inputs(IDS, MASK), pbtxt.outputs(_scores("SCORES", recipe))),
        recipe.instances.network_on_gpu,
        _warm_padding(),
    )


def _warm_padding() -> str:
    short = (Tensor(tensor.name, tensor.data_type, [STEP]) for tensor in (IDS, MASK))
    return pbtxt.warmup("padding", *map(pbtxt.zeros, short))


def postprocessing(recipe: Text) -> str:
    scores = _scores("SCORES", recipe)
    return pbtxt.program(
        "The network's scores -> the likeliest label and its probability.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [scores],
        [LABEL, SCORE],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("labels", ",".join(recipe.labels)),
    )


def ensemble(recipe: Text, engine: str) -> str:
    models = recipe.models
    ids, mask, scores = IDS.name, MASK.name, "SCORES"
    where = {CPU.ending: ".", GPU.ending: "; with the network on a GPU."}[engine]
    return pbtxt.ensemble(
        f"A text -> its label, and how sure that is{where}",
        models.ensemble,
        recipe.batch.max,
        QUERY,
        [LABEL, SCORE],
        Step(models.preprocessing, {"QUERY": "QUERY"}, {ids: "ids", mask: "mask"}),
        Step(f"{models.network}_{engine}", {ids: "ids", mask: "mask"}, {scores: "scores"}),
        Step(models.postprocessing, {scores: "scores"}, {"LABEL": "LABEL", "SCORE": "SCORE"}),
    )
