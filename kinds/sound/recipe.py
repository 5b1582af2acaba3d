"""Sound files -> what is heard in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from bundle_serving.infer import Question
from kinds.sound.drawings import DRAWN
from kinds.sound.export import Listener
from kinds.sound.serving.sounds import LOG_MEL, SHARES, Hearing
from scripts.artefacts.manifest import labels_beside
from scripts.artefacts.shapes import profile
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.evaluation.figures import TOP
from scripts.evaluation.labelled import Item, Labelled, read_files
from scripts.recipes import configs
from scripts.recipes.asking import Asked, Server, about_files
from scripts.recipes.layout import CPU, Engine, Layout
from scripts.recipes.parts import Batch, Count, ThreeSteps, set_count
from scripts.recipes.recipe import Contents, Export, Part
from scripts.settings import arguments
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Client, Label, Result, Source

EXPORT = Step("kinds.sound.export")

WARMUPS = Path(__file__).parent / "model_repository" / "sounds_preprocessing" / "warmup"
HEARING = "hearing.json"
Positive = Annotated[float, Field(gt=0)]


class Heard(Part):
    """How sounds are prepared: kinds.sound.serving.sounds.Hearing."""

    rate: Annotated[int, Field(ge=1000, le=192_000)]
    seconds: Positive
    longest: Annotated[float, Field(gt=0, le=600)]
    fft: Count
    hop: Count
    mels: Count
    low: Annotated[float, Field(ge=0)]
    high: Positive

    @model_validator(mode="after")
    def _consistent(self) -> Heard:
        if not self.low < self.high <= self.rate / 2:
            raise ValueError("low must be less than high, and high at most half the rate")
        if self.as_hearing.frames < 1:
            raise ValueError("a window must hold a frame of fft samples")
        return self

    @property
    def as_hearing(self) -> Hearing:
        return Hearing(**self.model_dump())


class SoundBatch(Batch):
    optimal_windows: Count


class Sound(ThreeSteps):
    """A WAV file -> the probability of each class."""

    kind: Literal["sound"]
    weights: str = DRAWN
    classes: Count | None = None  # left out: as the models' configs say; served: as the network has
    hearing: Heard
    batch: SoundBatch
    warmup: str = ""  # a file in sounds_preprocessing/warmup, if not its template's

    example: ClassVar[str] = "sounds.yaml"
    asked_about: ClassVar[str] = "SOUND"

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        self._set_sizes(member, self.hearing.as_hearing, self.classes)
        if self.warmup:
            configs.set_warmup_file(member, WARMUPS / self.warmup)

    def _set_sizes(self, member: Any, how: Hearing, classes: int | None) -> None:
        scores, given = ("SCORES", "INPUT_0", "OUTPUT_0", "OUTPUT"), [classes] if classes else []
        sizes = {name: given for name in scores}
        configs.set_dims(member, {LOG_MEL: [-1, how.mels, how.frames], **sizes})

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        how = Hearing(**made.manifest.transform)
        return {self.models.preprocessing: {HEARING: how.dump()}}

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        network, first = self.network_model(layout.engine), self.models.preprocessing
        if member.name not in (first, network, self.models.postprocessing, self.ensemble):
            return False
        how = Hearing(**made.manifest.transform)
        self._set_sizes(member, how, made.manifest.onnx["classes"])
        if member.name == first:
            set_count(member, layout.preprocessing.instances)
        elif member.name == network and layout.engine is CPU:
            configs.set_share(member, layout.network)
            configs.set_parameters(member, most_numbers=how.most_windows * how.mels * how.frames)
        return True

    def label_lines(self, made: Workspace, repository: Path) -> str:
        return (made.onnx / configs.LABELS).read_text()

    def export(self, settings: Settings, engine: Engine) -> Export:
        weights = str(settings.value(self.setting)) if self.setting else self.weights
        labels = labels_beside(weights) if weights != DRAWN else None
        spec = Listener(weights, self.hearing.model_dump(), engine.export, labels)
        return Export(EXPORT, spec, self.setting not in settings.given)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """By number of sounds and of windows."""
        how, batch = self.hearing.as_hearing, self.batch

        def make_shapes(*count: int) -> dict[str, tuple[int, ...]]:
            return {LOG_MEL: (*count, how.mels, how.frames), SHARES: count}

        most = how.most_windows
        usual = make_shapes(batch.optimal, min(batch.optimal_windows, most))
        return profile(make_shapes(1, 1), usual, make_shapes(self.most, most))

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client.sources import SOUNDS

        top = arguments.load(environment).top

        def hear(client: Client, source: Source) -> Result:
            return client.hear(source, top, self.ensemble)

        return about_files(server, asked, environment, SOUNDS, hear)

    def read_labelled(self, path: Path) -> Labelled:
        from bundle_client.sources import SOUNDS

        return read_files(path, SOUNDS.has)

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        return asked.client.hear(item.source, TOP, asked.model).labels

    def question(self, source: bytes) -> Question:
        return {"INPUT": np.frombuffer(source, np.uint8)[None]}
