"""A function of the user's own: named tensors in, named tensors out."""

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving import infer
from bundle_serving.agreement import Agreement
from bundle_serving.health import EXAMPLE
from bundle_serving.infer import Answer, Question
from kinds.callable.serving.values import NotAValue, Spec, rows
from scripts.artefacts import packages
from scripts.artefacts.step import Place, Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.asking import ask_tensors
from scripts.recipes.layout import Layout
from scripts.recipes.parts import Count, set_count
from scripts.recipes.recipe import Contents, Ensemble, Name, Part, Recipe, Server, Trial

FILE = "function.py"
DESCRIBE = Step("kinds.callable.describe", Place.SERVER)
DESCRIBED = {"inputs", "outputs", "batch", "several_answers", "instances", "request"}


class Program(Ensemble):
    program: Name


class Named(Part):
    name: Name
    data_type: str
    dims: tuple[int, ...]

    @property
    def spec(self) -> Spec:
        return Spec(self.name, self.data_type.replace("STRING", "BYTES"), self.dims)


class Batched(Part):
    max: Annotated[int, Field(ge=0)]  # 0: it takes no batch
    preferred: tuple[Count, ...] = ()
    max_delay_us: Annotated[int, Field(ge=0)] = 0


class Function(Recipe):
    """What a file binds to the name of the ensemble."""

    kind: Literal["callable"]
    models: Program
    source: str  # the file
    requirements: str = ""  # a file that names the packages it imports
    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]
    batch: Batched
    several_answers: bool = False
    instances: Count
    request: str  # one that it answers, packed

    example: ClassVar[str] = "template"
    asked_about: ClassVar[str] = "INPUTS"

    @property
    def is_decoupled(self) -> bool:
        return self.several_answers

    @property
    def description(self) -> dict[str, Any]:
        """As describe.py prints it."""
        return self.model_dump(mode="json", include=DESCRIBED)

    @property
    def model_names(self) -> dict[str, str]:
        return {"ensemble": self.ensemble, "program": self.models.program}

    def adapt(self, member: Any) -> None:
        member.max_batch_size = self.batch.max
        for side, known in ((member.input, self.inputs), (member.output, self.outputs)):
            for each in known:
                side.add(name=each.name, data_type=f"TYPE_{each.data_type}", dims=each.dims)
        if self.is_decoupled:
            member.model_transaction_policy.decoupled = True
        if member.name == self.ensemble:
            (step,) = member.ensemble_scheduling.step
            step.input_map.update({each.name: each.name for each in self.inputs})
            step.output_map.update({each.name: each.name for each in self.outputs})
            configs.set_parameters(member, **{EXAMPLE: self.request})
        else:
            set_count(member, self.instances)
            self._set_batches(member)
            configs.set_parameters(member, callable=self.ensemble)

    def _set_batches(self, member: Any) -> None:
        if not self.batch.max:
            member.ClearField("dynamic_batching")
            return
        batching = member.dynamic_batching
        batching.preferred_batch_size[:] = self.batch.preferred or [self.batch.max]
        batching.max_queue_delay_microseconds = self.batch.max_delay_us

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.program]

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        found: dict[str, Path | str] = {FILE: self.read_beside(self.source)}
        if needed := self.requirements_file:
            found |= packages.list_files(needed)
        return {self.models.program: found}

    def trial(self, made: Workspace) -> Trial:
        words: dict[str, Any] = {
            "file": self.path_beside(self.source),
            "same": {self.ensemble: self.description},
        }
        if needed := self.requirements_file:
            words["packages"] = packages.folder_of(needed)
        return Trial(DESCRIBE, words)

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        for inputs in asked:
            self.question(inputs.encode())

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        (answer,) = ask_tensors(server.address, self.ensemble, [self.read_question(asked)])
        for each in self._answers(answer):
            print(json.dumps({name: _show_tensor(tensor) for name, tensor in each.items()}))
        return 0

    def _answers(self, answer: Answer) -> list[Answer]:
        """One that is decoupled may give several, which the door sends as rows of a batch."""
        if not self.batch.max:
            return [answer]
        count = min(len(tensor) for tensor in answer.values())
        return [{name: tensor[n] for name, tensor in answer.items()} for n in range(count)]

    def question(self, source: bytes) -> Question:
        try:
            values = json.loads(source)
            found = rows([each.spec for each in self.inputs], values)
        except (NotAValue, ValueError) as fault:
            names = ", ".join(f"{each.name} ({each.spec})" for each in self.inputs)
            raise UserError(f"INPUTS: {fault}", f"give JSON with {names}") from None
        return {name: row[None] if self.batch.max else row for name, row in found.items()}

    def read_question(self, asked: Sequence[str]) -> Question:
        return self.question(asked[0].encode()) if asked else infer.unpack_question(self.request)

    def row(self, question: Question) -> Question:
        return super().row(question) if self.batch.max else question

    def golden(self, made: Workspace) -> list[Question]:
        return [infer.unpack_question(self.request)]

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        """That there are answers: what they must be, its own tests know."""
        return Agreement(len(answers), len(answers), 0)

    def gist(self, answer: Answer) -> Hashable:
        return tuple(sorted(answer))


def _show_tensor(tensor: NDArray[Any]) -> Any:
    if tensor.dtype.kind != "S":
        return tensor.tolist()
    return np.char.decode(tensor, "utf-8", "replace").tolist()
