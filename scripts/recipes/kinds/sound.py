"""Sound files -> what is heard in them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from bundle_serving import infer
from bundle_serving.health import EXAMPLE, SOUNDS, TAKES
from bundle_serving.infer import Answer, Question
from bundle_serving.sounds import LOG_MEL, SHARES, Hearing
from scripts.base.errors import UserError
from scripts.recipes import pbtxt
from scripts.recipes.asking import Server, about_files
from scripts.recipes.folders import MODELS
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Batch, Count, Instances, Models, Part
from scripts.recipes.pbtxt import NEWEST_VERSION, Step, Tensor, share
from scripts.recipes.recipe import Contents, Export, Recipe
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.manifest import labels_beside
from scripts.steps.shapes import profile
from scripts.steps.sounds.source import DRAWN, Listener
from scripts.steps.workspace import Workspace

if TYPE_CHECKING:
    from bundle_client import Client, Result, Source

WARMUP = MODELS / "sounds_preprocessing" / "warmup"
HEARING = "hearing.json"
Positive = Annotated[float, Field(gt=0)]


class Heard(Part):
    """How sounds are prepared: bundle_serving.sounds.Hearing."""

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


class Sound(Recipe):
    """A WAV file -> the probability of each class."""

    kind: Literal["sound"]
    models: Models
    weights: str = DRAWN
    classes: Count
    hearing: Heard
    batch: SoundBatch
    instances: Instances
    warmup: str

    example: ClassVar[str] = "sounds.yaml"
    asked_about: ClassVar[str] = "SOUND"

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        models = self.models
        return {
            "sounds_preprocessing": models.preprocessing,
            "postprocessing": models.postprocessing,
        }

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.preprocessing, self.models.postprocessing]

    def network_model(self, engine: Engine) -> str:
        return f"{self.models.network}_{engine.ending}"

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        how = Hearing(**made.manifest.transform)
        return {self.models.preprocessing: {HEARING: how.dump()}}

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        classes = [made.manifest.onnx["classes"]]
        if member.name == self.models.preprocessing:
            member.instance_group[0].count = layout.preprocessing.instances
        elif member.name == self.network_model(layout.engine):
            member.output[0].dims[:] = classes
            if layout.engine is CPU:
                share(member, layout.network)
        elif member.name == self.models.postprocessing:
            warm = member.model_warmup[0].inputs["INPUT_0"]
            for tensor in (member.input[0], member.output[0], warm):
                tensor.dims[:] = classes
        elif member.name == self.ensemble:
            member.output[0].dims[:] = classes
        else:
            return False
        return True

    def label_lines(self, made: Workspace, repository: Path) -> str:
        return (made.onnx / pbtxt.LABELS).read_text()

    def export(self, settings: Settings, engine: Engine) -> Export:
        weights = str(settings.value(self.setting)) if self.setting else self.weights
        labels = labels_beside(weights) if weights != DRAWN else None
        spec = Listener(weights, self.hearing.model_dump(), engine.export, labels)
        return Export("sounds.export", spec.words, spec, self.setting not in settings.given)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        """By number of sounds and of windows."""
        how, batch = self.hearing.as_hearing, self.batch

        def at(*count: int) -> dict[str, tuple[int, ...]]:
            return {LOG_MEL: (*count, how.mels, how.frames), SHARES: count}

        usual = at(batch.optimal, batch.optimal_windows)
        return profile(at(1, 1), usual, at(batch.max, how.most_windows))

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client.sources import SOUNDS

        top = arguments.load(environment).top

        def hear(client: Client, source: Source) -> Result:
            return client.hear(source, top, self.ensemble)

        return about_files(server, asked, environment, SOUNDS, hear)

    def question(self, source: bytes) -> Question:
        return {"INPUT": np.frombuffer(source, np.uint8)[None]}

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row: NDArray[Any] = answer["OUTPUT"][0]
        return row


def configs(recipe: Sound) -> dict[str, str]:
    """Path in the repository -> text."""
    return recipe.models.configs(
        preprocessing(recipe),
        network(recipe),
        network_on_gpu(recipe),
        postprocessing(recipe),
        partial(ensemble, recipe),
    )


def _file(length: int = -1) -> Tensor:
    return Tensor("FILE", "UINT8", [length], ragged="files of different lengths share a batch")


def _heard(recipe: Sound, windows: int = -1) -> tuple[Tensor, Tensor]:
    how = recipe.hearing.as_hearing
    return (
        Tensor(LOG_MEL, "FP32", [windows, how.mels, how.frames]),
        Tensor(SHARES, "FP32", [windows]),
    )


def _scores(name: str, recipe: Sound) -> Tensor:
    return Tensor(name, "FP32", [recipe.classes])


def preprocessing(recipe: Sound) -> str:
    warm = WARMUP / recipe.warmup
    if not warm.is_file():
        raise UserError(
            f"there is no {warm.relative_to(MODELS)}", "put the recipe's warm-up sound there"
        )
    return pbtxt.program(
        "The bytes of a WAV file -> windows of log-mel bands, and each window's share of the"
        " answer.",
        recipe.models.preprocessing,
        recipe.batch.max,
        [_file()],
        _heard(recipe),
        pbtxt.instances(recipe.instances.preprocessing, "CPU"),
        pbtxt.warmup(warm.stem, pbtxt.file(_file(warm.stat().st_size), warm.name)),
    )


def network(recipe: Sound) -> str:
    return pbtxt.onnx(
        "The network: windows -> scores, averaged over a sound's windows. Sounds of as many windows"
        "\nshare a batch. Runs like resnet50_onnx.",
        f"{recipe.models.network}_{CPU.ending}",
        recipe.batch.max,
        _signature(recipe),
        recipe.instances.network,
        _silence(recipe),
        threads=1,
    )


def network_on_gpu(recipe: Sound) -> str:
    return pbtxt.config(
        "The network on a GPU: a TensorRT plan, windows -> scores, averaged over a sound's windows."
        "\nSounds of as many windows share a batch.",
        f"{recipe.models.network}_{GPU.ending}",
        pbtxt.platform("tensorrt_plan"),
        recipe.batch.max,
        *_signature(recipe),
        NEWEST_VERSION,
        pbtxt.instances(recipe.instances.network_on_gpu, "GPU"),
        pbtxt.preferred_batches(recipe.batch.preferred, recipe.batch.max_delay_us),
        _silence(recipe),
    )


def _signature(recipe: Sound) -> tuple[str, str]:
    scores = Tensor("SCORES", "FP32", [recipe.classes], labels=pbtxt.LABELS)
    return pbtxt.inputs(*_heard(recipe)), pbtxt.outputs(scores)


def _silence(recipe: Sound) -> str:
    return pbtxt.warmup("silence", *map(pbtxt.zeros, _heard(recipe, windows=1)))


def postprocessing(recipe: Sound) -> str:
    scores = _scores("INPUT_0", recipe)
    return pbtxt.program(
        "The network's scores -> probabilities.",
        recipe.models.postprocessing,
        recipe.batch.max,
        [scores],
        [_scores("OUTPUT_0", recipe)],
        pbtxt.instances(1, "CPU"),
        pbtxt.warmup("zeros", pbtxt.zeros(scores)),
        pbtxt.parameter("answers", "single-label"),
    )


def ensemble(recipe: Sound, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: "; with the network on a GPU."}[engine]
    heard = {LOG_MEL: "windows", SHARES: "shares"}
    example = infer.packed(recipe.question(silence()))
    parameters = (
        pbtxt.parameter(EXAMPLE, example, "A request that it answers."),
        pbtxt.parameter(TAKES, SOUNDS, "What the page asks it with."),
    )
    return pbtxt.ensemble(
        f"The bytes of a WAV file -> the probability of each class{where}",
        models.ensemble,
        recipe.batch.max,
        Tensor("INPUT", "UINT8", [-1]),
        [Tensor("OUTPUT", "FP32", [recipe.classes], labels=pbtxt.LABELS)],
        Step(models.preprocessing, {"FILE": "INPUT"}, heard),
        Step(f"{models.network}_{engine}", heard, {"SCORES": "scores"}),
        Step(models.postprocessing, {"INPUT_0": "scores"}, {"OUTPUT_0": "OUTPUT"}),
        parameters="\n".join(parameters),
    )


def silence() -> bytes:
    """The shortest WAV file that any pipeline of sounds takes: 10 ms of 8 bits."""
    samples, rate = b"\x80" * 80, 8000
    how = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate, 1, 8)
    content = b"WAVE" + how + struct.pack("<4sI", b"data", len(samples)) + samples
    return struct.pack("<4sI", b"RIFF", len(content)) + content
