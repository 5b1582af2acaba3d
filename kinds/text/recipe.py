"""Texts -> their sentiment."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving.infer import Answer, Question
from kinds.text.export import Classifier
from kinds.text.sentences import MINILM
from scripts.artefacts.shapes import profile
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.base.paths import expand
from scripts.base.text import printable
from scripts.evaluation.labelled import Item, Labelled, read_texts
from scripts.recipes import configs
from scripts.recipes.asking import Asked
from scripts.recipes.layout import CPU, Engine, Layout
from scripts.recipes.parts import Batch, Count, ThreeSteps
from scripts.recipes.recipe import Contents, Export, Part, Server
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Label

EXPORT = Step("kinds.text.export", layers=("sentiment",))
WITH_MINILM = replace(EXPORT, layers=("sentiment", "minilm"))

# Padded to the longest text of a request, rounded up to a multiple of this.
STEP = 8

RECIPE_FILE = "recipe.yaml"
RECIPE_HEAD = "# The tokenizer: a folder beside this file, or a hub's name.\n"
TOKENIZER = "tokenizer"  # the folder beside the network, written by the export


class Words(Part):
    """How texts become tokens."""

    task_prefix: str = ""
    max_seq_len: Annotated[int, Field(ge=8)]


class TextBatch(Batch):
    optimal_tokens: Count


class Text(ThreeSteps):
    """A text -> its label and score."""

    kind: Literal["text"]
    source: str  # a name on the hub, or a folder with the same files
    # A config has them in one text, with commas between.
    labels: Annotated[tuple[Annotated[str, Field(pattern=r"^[^,]+$")], ...], Field(min_length=2)]
    words: Words
    batch: TextBatch
    warmup: Annotated[str, Field(pattern=r"^[ -~]{0,100}$")] = ""  # a text, if not its template's

    example: ClassVar[str] = "sentiment.yaml"
    asked_about: ClassVar[str] = "TEXT"

    @property
    def classes(self) -> int:
        return len(self.labels)

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        self._set_labels(member)

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        self._set_labels(member)
        if member.name == self.network_model(CPU):
            configs.set_parameters(member, most_numbers=self._longest)
        return member.name in (self.network_model(layout.engine), self.models.postprocessing)

    def _set_labels(self, member: Any) -> None:
        configs.set_dims(member, {"SCORES": [self.classes]})
        if member.name == self.models.postprocessing:
            configs.set_parameters(member, labels=",".join(self.labels))

    def own_files(self) -> dict[str, str]:
        """The warm-up's text, as Triton reads it from a file: four bytes of length before it."""
        words = struct.pack("<I", len(self.warmup)).decode("ascii") + self.warmup
        return {f"{self.models.preprocessing}/warmup/text": words} if self.warmup else {}

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        tokenizer = "tokenizer.json"
        how = {"backbone_model_name": TOKENIZER} | self.words.model_dump()
        return {
            self.models.preprocessing: {
                f"{TOKENIZER}/{tokenizer}": made.onnx / tokenizer,
                RECIPE_FILE: RECIPE_HEAD + yaml.safe_dump(how, sort_keys=False),
            }
        }

    def export(self, settings: Settings, engine: Engine) -> Export:
        source = self.override(settings) or self.source
        path = expand(source)
        source = str(path.resolve()) if path.is_dir() else source
        words = self.words
        spec = Classifier(source, words.max_seq_len, self.labels, engine.export, words.task_prefix)
        step = WITH_MINILM if source == MINILM else EXPORT
        return Export(step, spec, self.setting not in settings.given)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """By number of texts and by length."""

        def make_shapes(texts: int, tokens: int) -> dict[str, tuple[int, int]]:
            return {name: (texts, tokens) for name in ("INPUT_IDS", "ATTENTION_MASK")}

        batch = self.batch
        return profile(
            make_shapes(1, STEP),
            make_shapes(batch.optimal, batch.optimal_tokens),
            make_shapes(self.most, self._longest),
        )

    @property
    def _longest(self) -> int:
        """In tokens."""
        return math.ceil(self.words.max_seq_len / STEP) * STEP

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Client, ClientError

        try:
            with Client(**server.known) as client:
                found = client.sentiment(*asked, model=self.ensemble)
        except ClientError as fault:
            raise UserError(fault.cause, fault.remedy) from None
        for judged in found:
            for_people = f"{printable(judged.label)}  {judged.score:.2%}"
            print(json.dumps(asdict(judged)) if environment.get("JSON") else for_people)
        return 0

    def question(self, source: bytes) -> Question:
        return {"QUERY": np.array([[source]])}

    def read_question(self, asked: Sequence[str]) -> Question:
        return self.question(asked[0].encode())

    def read_labelled(self, path: Path) -> Labelled:
        return read_texts(path)

    def name_classes(self, made: Workspace) -> Sequence[str]:
        return self.labels

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        from bundle_client import Label

        (judged,) = asked.client.sentiment(str(item.source), model=asked.model)
        return [Label(self.labels.index(judged.label), judged.label, judged.score)]

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row = np.full(self.classes, np.nan, np.float32)
        label = answer["LABEL"].ravel()[0].decode()
        row[self.labels.index(label)] = answer["SCORE"].ravel()[0]
        return row
