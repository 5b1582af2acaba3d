"""Rows of numbers -> their classes, or values: models of scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving import agreement, infer
from bundle_serving.agreement import Agreement
from bundle_serving.health import EXAMPLE
from bundle_serving.infer import Answer, Question
from kinds.table import rows
from kinds.table.export import Table as Source
from kinds.table.rows import INPUT, OUTPUT
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base import tables
from scripts.base.errors import UserError
from scripts.base.paths import expand
from scripts.evaluation.figures import TOP
from scripts.evaluation.labelled import Item, Labelled
from scripts.recipes import configs
from scripts.recipes.asking import Asked, ask_tensors
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count, set_count, set_most
from scripts.recipes.recipe import Ensemble, Export, Name, Recipe, Server
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Label

EXPORT = Step("kinds.table.export", layers=("tables",))

FIL = "fil"


class Networked(Ensemble):
    network: Name


class Table(Recipe):
    """A row of numbers -> the probability of each class, or a value."""

    kind: Literal["table"]
    models: Networked
    source: str  # the model's file
    labels: str = ""  # a file; empty: as the model calls its classes
    width: Annotated[int, Field(ge=0)] = 0  # how many numbers a row has; 0: as the model is
    columns: tuple[str, ...] = ()  # what they are called, if the model knows
    classes: tuple[str, ...] = ()  # none: it gives values
    values: Count = 1  # how many numbers an answer has
    most_rows: Count
    instances: Count

    example: ClassVar[str] = "template"
    head: ClassVar[str] = (
        "# Rows of numbers -> classes or values: `make ask MODEL={name} IN=rows.csv`.\n"
    )
    asked_about: ClassVar[str] = "IN"

    @property
    def model_names(self) -> dict[str, str]:
        network, on_gpu = map(self.network_model, (CPU, GPU))
        return {"ensemble": self.ensemble, "network_onnx": network, "network_fil": on_gpu}

    def adapt(self, member: Any) -> None:
        set_most(member, self.most_rows)
        row, answer = [self.width], [self.values]
        configs.set_dims(member, {"INPUT": row, INPUT: row, "OUTPUT": answer, OUTPUT: answer})
        for tensor in member.output:
            tensor.label_filename = configs.LABELS if self.classes else ""
        if member.name == self.ensemble:
            example, columns = infer.pack_question(self._example), json.dumps(self.columns)
            configs.set_parameters(member, columns=columns, **{EXAMPLE: example})
            return
        set_count(member, self.instances)
        if member.backend == FIL and not self.classes:
            configs.set_parameters(member, is_classifier="false")
            for key in ("predict_proba", "threshold"):
                del member.parameters[key]

    def programs(self, layout: Layout) -> list[str]:
        return []

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.network}_{FIL if engine is GPU else CPU.ending}"

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        if member.name != self.network_model(layout.engine):
            return False
        if layout.engine is CPU:
            configs.set_share(member, layout.network)
        else:
            set_count(member, layout.network.instances)
        return True

    def label_lines(self, made: Workspace, repository: Path) -> str | None:
        return (made.onnx / configs.LABELS).read_text() if self.classes else None

    @property
    def settings(self) -> tuple[str, ...]:
        return (Settings.weights.name, Settings.samples.name)

    def deciding(self) -> tuple[str, ...]:
        return (Settings.weights.name,)

    def defaults(self) -> dict[str, str]:
        return {
            Settings.weights.name: str(self.path_beside(self.source)),
            Settings.samples.name: "",
        }

    def export(self, settings: Settings, engine: Engine) -> Export:
        source = Path(settings.weights)
        labels = self.path_beside(self.labels) if self.labels else None
        spec = Source(source, labels, settings.samples, forest=engine is GPU)
        as_before = Settings.weights.name not in settings.given
        return Export(EXPORT, spec, as_before)

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        found = self.as_found(made)
        differ = [
            name
            for name in ("width", "columns", "classes", "values")
            if getattr(found, name) != getattr(self, name)
        ]
        if self.width and differ:
            raise UserError(
                f"{made.manifest.describe()} has other {differ[0]} than the pipeline",
                "give it a pipeline of its own: make add-model NAME=…",
            )

    def as_found(self, made: Workspace) -> Self:
        found = made.manifest.onnx
        update = {name: tuple(found[name]) for name in ("columns", "classes")}
        width = {"width": found["input"][1], "values": found["values"]}
        return self.model_copy(update=update | width)

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        self._questions(asked)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        answers = ask_tensors(server.address, self.ensemble, self._questions(asked))
        given = [row for answer in answers for row in answer["OUTPUT"].reshape(-1, self.values)]
        if environment.get("JSON"):
            for line in self._as_json(given):
                print(line)
        else:
            head, *lines = self._as_table(given)
            tables.show("r" * len(head), head, lines)
        return 0

    def read_question(self, asked: Sequence[str]) -> Question:
        return self._questions(asked)[0]

    def _questions(self, asked: Sequence[str]) -> list[Question]:
        if not asked:
            return [self._example]
        read = rows.read(expand(asked[0]), self.columns, self.width)
        parts = range(0, len(read), self.most_rows)
        return [{"INPUT": read[at : at + self.most_rows]} for at in parts]

    @property
    def _example(self) -> Question:
        return {"INPUT": np.zeros((1, self.width), np.float32)}

    @property
    def _names(self) -> Sequence[str]:
        numbered = [f"value {number}" for number in range(1, self.values + 1)]
        return self.classes or (numbered if self.values > 1 else ["value"])

    def _as_json(self, given: Sequence[NDArray[Any]]) -> Iterator[str]:
        for row in given:
            numbers = dict(zip(self._names, map(float, row), strict=True))
            if self.classes:
                yield json.dumps({"label": self.classes[row.argmax()], "probabilities": numbers})
            else:
                yield json.dumps(numbers)

    def _as_table(self, given: Sequence[NDArray[Any]]) -> Iterator[list[str]]:
        yield [*(["label"] if self.classes else []), *self._names]
        for row in given:
            numbers = [f"{each:.2%}" if self.classes else f"{each:g}" for each in row]
            yield [*([self.classes[row.argmax()]] if self.classes else []), *numbers]

    def read_labelled(self, path: Path) -> Labelled:
        if not self.classes:
            raise UserError(f"{self.ensemble} gives values, not classes", "do without: EVAL=none")
        return rows.read_labelled(path, self.columns, self.width)

    def name_classes(self, made: Workspace) -> Sequence[str]:
        return self.classes

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        from bundle_client import Label

        question = self.question(str(item.source).encode())
        (answer,) = ask_tensors(asked.server.address, asked.model, [question])
        (row,) = answer["OUTPUT"]
        return [
            Label(int(each), self.classes[each], float(row[each]))
            for each in np.argsort(-row)[:TOP]
        ]

    def question(self, source: bytes) -> Question:
        values = np.array(json.loads(source), np.float32)
        return {"INPUT": values.reshape(1, self.width)}

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        given = np.concatenate([answer["OUTPUT"] for answer in answers])
        return agreement.of_rows(self.expect_scores(made), given)

    def gist(self, answer: Answer) -> Hashable:
        return int(answer["OUTPUT"].argmax()) if self.classes else answer["OUTPUT"].shape
