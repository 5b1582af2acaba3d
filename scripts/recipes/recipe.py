"""The interface of every kind of pipeline, so that all commands treat all kinds alike."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from bundle_serving import agreement
from bundle_serving.agreement import Agreement
from bundle_serving.infer import Answer, Question
from bundle_serving.protocol import golden
from scripts.artefacts.exporting import as_words
from scripts.artefacts.manifest import ExportSpec
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.base.paths import locate
from scripts.evaluation.figures import Apart
from scripts.evaluation.labelled import Item, Labelled
from scripts.recipes import configs, folders
from scripts.recipes.asking import Asked
from scripts.recipes.asking import Server as Server
from scripts.recipes.folders import own
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Label

# The files of each member's version folder: a file to copy, or text to write.
Contents = Mapping[str, Mapping[str, Path | str]]

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]


class Part(BaseModel):
    # Built only when a recipe of its kind is read: most commands read one or two.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)


class Ensemble(Part):
    ensemble: Name


@dataclass(frozen=True)
class Trial:
    """A step that tries something, and what it is given."""

    step: Step
    spec: Any  # a dataclass, or arguments by name

    @property
    def words(self) -> Sequence[str | Path]:
        return as_words(self.spec)


@dataclass(frozen=True)
class Export(Trial):
    """The step that exports the network to ONNX."""

    spec: ExportSpec
    as_before: bool = False  # its source files may be gone, or on another machine


class Recipe(Part):
    """One pipeline. Each kind of pipeline is a class in kinds/KIND/recipe.py; its fields
    are the keys of its recipes. Commands use only this interface, so every kind is exported,
    checked, versioned, published, rolled out, measured and stored the same way:

    models     model_names are the folders of the repository, whose config.pbtxt is the source. All
               but the ensemble are members: their version folders belong to a version and contain
               their programs, the network (network_model) and additions(). fit() adapts a config
               to the machine. The folders of a recipe of the user's are copies of the example's,
               in which adapt() sets what the recipe says.
    version    export() says how the network is exported, computes_in() its precision on a CPU,
               shapes() the shapes of its TensorRT plan; require() refuses what cannot be served.
               `settings` are the pipeline's own; versions differ in deciding(), or, without a
               network, in their programs.
    answers    ask() is what `make classify` does, after require_asked(); question() turns a file
               or a text into one request, read_question() what ask() is given. golden() are
               requests with known answers, judge() compares a server's answers with them; gist()
               is what must not change from one version to the next.
    labels     read_labelled() reads labelled data for `make eval`, name_classes() says what the
               classes are called, guess() asks about one item, and ask_original() has the original
               network asked about all of them. A kind whose answers are no classes has
               read_apart() in their place.
    """

    kind: str
    models: Ensemble
    setting: str = ""  # the setting that overrides the recipe's source
    triton: Mapping[str, Mapping[str, Any]] = {}  # Triton's own switches, by model

    example: ClassVar[str]  # a recipe that shows every key
    head: ClassVar[str] = ""  # of a recipe that is written for the user, with {name}
    asked_about: ClassVar[str] = "IMG"  # the setting that names the input
    divided: ClassVar[bool] = False  # two networks share the work: measured against the larger one

    # File names in a recipe are relative to its folder.
    _folder: Path = PrivateAttr(default_factory=lambda: own().recipes)

    def lying_in(self, folder: Path) -> Self:
        self._folder = folder
        return self

    def path_beside(self, name: str) -> Path:
        return locate(self._folder / name)

    def read_beside(self, name: str) -> str:
        file = self.path_beside(name)
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as fault:
            raise UserError(
                f"cannot read {file}, which {self.ensemble} needs ({fault})", "put it back"
            ) from None

    @classmethod
    def example_path(cls) -> Path:
        return Path(inspect.getfile(cls)).parent / cls.example

    # models

    @property
    @abstractmethod
    def model_names(self) -> dict[str, str]:
        """What each of its models is for -> its name, which is its folder's."""

    @property
    def ensemble(self) -> str:
        return self.models.ensemble

    @property
    def members(self) -> set[str]:
        return {*self.model_names.values()} - {self.ensemble}

    @property
    def config(self) -> Any:
        """The ensemble's."""
        return configs.read_model(self.ensemble)

    def adapt(self, member: Any) -> None:
        """Sets what the recipe says in a parsed config, which is a copy of the example's."""

    def own_files(self) -> dict[str, str]:
        """Path in the repository -> text, beside the copies."""
        return {}

    @abstractmethod
    def programs(self, layout: Layout) -> list[str]:
        """The members that run a program on this machine."""

    def network_model(self, engine: Engine) -> str | None:
        return None

    def list_borrowed(self, engine: Engine) -> list[str]:
        """Models of another pipeline that this one uses, in whatever version is live."""
        return []

    def set_engine(self, member: Any, engine: Engine) -> bool:
        """A config names a GPU's networks: sets those of this engine in their place. Returns
        whether anything changed."""
        theirs, ours = (
            [self.network_model(each), *self.list_borrowed(each)] for each in (GPU, engine)
        )
        names = {name: own for name, own in zip(theirs, ours, strict=True) if name != own}
        steps = [each for each in member.ensemble_scheduling.step if each.model_name in names]
        for step in steps:
            step.model_name = names[step.model_name]
        return bool(steps)

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        """Files of the version folders besides programs and network."""
        return {}

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        """Adapts a model's parsed config; returns whether anything changed."""
        return False

    def variant(self, model: str, layout: Layout) -> str:
        """Which of the model's configs/ is adapted; empty: its config.pbtxt."""
        own = folders.model_folder(model) / "configs" / f"{CPU.config}.pbtxt"
        return CPU.config if layout.engine is CPU and own.exists() else ""

    def label_lines(self, made: Workspace, repository: Path) -> str | None:
        """The labels.txt of the models whose configs name one: ensemble and network."""
        return None

    @property
    def labels_owner(self) -> str:
        """The ensemble of another pipeline whose labels it has, whichever they are."""
        return ""

    # version

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that belong to the pipeline and not to the server."""
        return (self.setting,) if self.setting else ()

    @property
    def requirements_file(self) -> Path | None:
        """What names the packages that the user's programs import."""
        named = getattr(self, "requirements", "")
        return self.path_beside(named) if named else None

    def override(self, settings: Settings) -> str:
        return settings[self.setting] if self.setting else ""

    def deciding(self) -> tuple[str, ...]:
        return self.settings

    def defaults(self) -> dict[str, str]:
        """The settings that the recipe sets."""
        return {}

    def export(self, settings: Settings, engine: Engine) -> Export | None:
        return None

    def computes_in(self, settings: Settings) -> str:
        """The precision to check on a CPU."""
        return "fp32"

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return {}

    def trial(self, made: Workspace) -> Trial | None:
        """Tries programs before they are published, once the network is exported."""
        return None

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        """Raises UserError if it cannot be served together with what is in this repository."""

    def as_found(self, made: Workspace) -> Self:
        """With what the export of a network of the user's own found out about it."""
        return self

    # answers

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        """Raises UserError, before a server is started, if this cannot be asked."""

    @abstractmethod
    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        """Prints the answers; returns the exit code."""

    @abstractmethod
    def question(self, source: bytes) -> Question: ...

    def read_question(self, asked: Sequence[str]) -> Question:
        """The first request of what ask() is given."""
        return self.question(Path(asked[0]).read_bytes())

    def row(self, question: Question) -> Question:
        """Without its batch dimension."""
        return {name: tensor[0] for name, tensor in question.items()}

    @property
    def is_decoupled(self) -> bool:
        """Whether a request may have several answers, or none."""
        return False

    def golden(self, made: Workspace) -> list[Question]:
        return golden.load(made.onnx / "golden.npz")

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        rows = np.stack([self.probabilities(each) for each in answers])
        return self.compare_known(made, rows)

    def compare_known(self, made: Workspace, rows: NDArray[Any]) -> Agreement:
        """Probabilities, as they are answered to the golden requests."""
        return agreement.compare_known(self.expect_scores(made), rows, self.reading)

    def is_own_answer(self, answer: Answer) -> bool:
        """Whether no borrowed network decided it."""
        return True

    # labels

    def read_labelled(self, path: Path) -> Labelled:
        raise UserError(
            f"{self.ensemble} names no classes that labelled data could be compared with",
            "do without: EVAL=none",
        )

    def read_apart(self, path: Path, made: Workspace) -> Apart | None:
        """Labelled data of a kind whose answers are no classes, and has figures of its own."""
        return None

    def name_classes(self, made: Workspace) -> Sequence[str]:
        """In the network's order."""
        return (made.onnx / configs.LABELS).read_text().splitlines()

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        """The likeliest classes, the likeliest first."""
        raise NotImplementedError

    def ask_original(self, made: Workspace, settings: Settings, engine: Engine) -> Trial | None:
        """The step that asks the original about labelled files, as this made it."""
        return None

    @property
    def reading(self) -> str:
        """How the scores are read: a key of READINGS."""
        return "single-label"

    def expect_scores(self, made: Workspace) -> NDArray[Any]:
        """The scores of the golden requests."""
        scores: NDArray[Any] = np.load(made.onnx / "golden.npz")["scores"]
        return scores

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        """One row; NaN where the answer has no value."""
        row: NDArray[Any] = np.nan_to_num(answer["OUTPUT"][0], nan=np.inf)
        return row

    def gist(self, answer: Answer) -> Hashable:
        return int(np.nanargmax(self.probabilities(answer)))
