"""What every kind of pipeline has to tell, so that all commands treat all kinds alike."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from scripts.base.paths import ROOT
from scripts.recipes.asking import Server as Server
from scripts.recipes.layout import GPU, Engine, Layout
from scripts.recipes.parts import Ensemble, Part
from scripts.settings.settings import Settings
from scripts.steps import agreement, golden
from scripts.steps.agreement import Agreement
from scripts.steps.infer import Answer, Question
from scripts.steps.manifest import ExportSpec
from scripts.steps.workspace import Workspace

# The files of each member's version folder: a file to be taken, or a text.
Contents = Mapping[str, Mapping[str, Path | str]]


@dataclass(frozen=True)
class Export:
    """The step that makes the network's ONNX file, and what it is told."""

    step: str  # a module of scripts/steps
    words: Sequence[str | Path]
    spec: ExportSpec
    as_before: bool = False  # its files may be gone, or on another machine
    layers: tuple[str, ...] = ()  # of requirements/: what the image for exports has not


class Recipe(Part):
    """One pipeline. A kind of pipeline is a subclass, alone in scripts/recipes/kinds/KIND.py; its
    fields are the keys of its recipes. Commands know nothing else of a kind, so that all kinds are
    exported, proved, versioned, published, rolled out, measured and stored alike:

    models     files() are the folders of the repository. All of them but the ensemble are members:
               their version folders come with a version, and hold their programs, the network
               (network_model) and additions(). fit() adapts a member's config to the machine.
    version    export() says how the network is made, computes_in() its precision, shapes() those of
               its TensorRT plan; require() refuses what cannot be served. `settings` belong to the
               pipeline, deciding() tell its versions apart. Without a network, versions differ by
               their programs.
    answers    ask() is what `make classify` does; question() makes one request of a file or a text.
               golden() are those whose answers are known, and judge() says how well a server's
               agree; gist() is what must stay the same from one version to the next.
    """

    kind: str
    models: Ensemble
    setting: str = ""  # that wins over where the recipe says that the network comes from

    example: ClassVar[str]  # the recipe that shows every key
    asked_about: ClassVar[str] = "IMG"  # the setting that names what it is asked about
    divided: ClassVar[bool] = False  # by a network and one that it borrows: measured beside that

    _folder: Path = PrivateAttr(default=ROOT / "recipes")  # files are named from where it lies

    def lying_in(self, folder: Path) -> Self:
        self._folder = folder
        return self

    def beside(self, name: str) -> Path:
        return (self._folder / name).resolve()

    # models

    @abstractmethod
    def files(self) -> dict[str, str]:
        """Path in the repository -> text."""

    def shared(self) -> dict[str, str]:
        """Models of the project -> those of this pipeline that get their programs."""
        return {}

    @property
    def ensemble(self) -> str:
        return self.models.ensemble

    @property
    def members(self) -> set[str]:
        return {path.partition("/")[0] for path in self.files()} - {self.ensemble}

    @abstractmethod
    def programs(self, layout: Layout) -> list[str]:
        """The members that run a program, as this machine serves them."""

    def network_model(self, engine: Engine) -> str | None:
        return None

    def borrowed(self, engine: Engine) -> list[str]:
        """Models of another pipeline, whichever version of them serves."""
        return []

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        """Files of the version folders, beside programs and network."""
        return {}

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        """Changes a model's parsed config; whether there was anything to be changed."""
        return False

    def label_lines(self, made: Workspace, repository: Path) -> str | None:
        """The labels.txt of those models whose configs name one: ensemble and network."""
        return None

    # version

    @property
    def settings(self) -> tuple[str, ...]:
        """Those that belong to the pipeline, and not to the server."""
        return (self.setting,) if self.setting else ()

    def said(self, wished: Settings) -> str:
        return wished[self.setting] if self.setting else ""

    def deciding(self) -> tuple[str, ...]:
        return self.settings

    def defaults(self) -> dict[str, str]:
        """The settings that the recipe says."""
        return {}

    def export(self, wished: Settings, engine: Engine) -> Export | None:
        return None

    def computes_in(self, wished: Settings) -> str:
        """The precision that is proved for a CPU."""
        return "fp32"

    def shapes(self, made: Workspace, wished: Settings) -> dict[str, str]:
        return {}

    def require(self, made: Workspace, wished: Settings, repository: Path) -> None:
        """UserError where it cannot be served beside what this repository holds."""

    def describe(self, made: Workspace, engine: Engine) -> str:
        if not made.onnx.is_dir():
            return "programs alone"
        return f"{made.manifest.describe()}, {precision_of(made, engine)}"

    # answers

    @abstractmethod
    def ask(self, server: Server, asked: Sequence[str], said: Mapping[str, str]) -> int:
        """Prints what it answers; the exit code."""

    @abstractmethod
    def question(self, source: bytes) -> Question: ...

    def golden(self, made: Workspace) -> list[Question]:
        return golden.load(made.onnx / "golden.npz")

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        rows = np.stack([self.probabilities(each) for each in answers])
        return agreement.told(self.expected(made), rows)

    def expected(self, made: Workspace) -> NDArray[Any]:
        """The scores of the golden questions."""
        scores: NDArray[Any] = np.load(made.onnx / "golden.npz")["scores"]
        return scores

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        """A row; NaN where the answer does not tell."""
        raise NotImplementedError

    def gist(self, answer: Answer) -> Hashable:
        return int(np.nanargmax(self.probabilities(answer)))


def precision_of(made: Workspace, engine: Engine) -> str:
    """That a network computes in."""
    if not made.onnx.is_dir():
        return "fp32"
    if engine is not GPU:
        return str(made.decision["precision"])
    # What TensorRT makes of float32 by itself.
    return "tf32" if made.manifest.identity["precision"] == "fp32" else "fp16"
