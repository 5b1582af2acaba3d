"""Frames of a video -> what they show, smoothed over time, by the network of another pipeline."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bundle_serving import infer
from bundle_serving.agreement import Agreement
from bundle_serving.health import EXAMPLE, PICTURE
from bundle_serving.infer import Answer, Question
from bundle_serving.smoothing import RULES, Rules
from scripts import bootstrap
from scripts.base.errors import UserError
from scripts.recipes import pbtxt
from scripts.recipes.layout import CPU, GPU, Engine, Layout
from scripts.recipes.parts import Count, Ensemble, Name
from scripts.recipes.pbtxt import NEWEST_VERSION, Step, Tensor
from scripts.recipes.pictures import OfPictures, require_pillow
from scripts.recipes.recipe import Contents, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings
from scripts.steps.workspace import Workspace

# Triton keeps more of them than the model takes: the model refuses, Triton would let them wait.
PLACES_PER_STREAM = 16
# Of the keeper's requests: no client that counts comes so far.
KEEPERS_SEQUENCE = infer.MOST_SEQUENCES
GOLDEN = 4


class VideoModels(Ensemble):
    preprocessing: Name
    network: Name
    postprocessing: Name
    smoothing: Name


class Video(OfPictures):
    """An image file, one of a sequence -> the probability of each class, over the sequence."""

    kind: Literal["video"]
    models: VideoModels
    labels: Name  # the ensemble whose models these are
    smoothing: Annotated[float, Field(gt=0, le=1)]
    streams: Count
    idle_s: Annotated[float, Field(gt=0)]
    max_batch: Count

    example: ClassVar[str] = "video.yaml"
    asked_about: ClassVar[str] = "VIDEO"

    def files(self) -> dict[str, str]:
        return configs(self)

    def shared(self) -> dict[str, str]:
        return {"video_smoothing": self.models.smoothing}

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.smoothing]

    def borrowed(self, engine: Engine) -> list[str]:
        models = self.models
        return [models.preprocessing, f"{models.network}_{engine.ending}", models.postprocessing]

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        rules = Rules(self.smoothing, self.streams, self.idle_s)
        return {self.models.smoothing: {RULES: json.dumps(vars(rules), indent=2) + "\n"}}

    @property
    def labelled_like(self) -> str:
        return self.labels

    def label_lines(self, made: Workspace, repository: Path) -> str:
        """None where that is not laid out: where answers are only compared."""
        of_the_network = repository / self.labels / pbtxt.LABELS
        return of_the_network.read_text() if of_the_network.exists() else ""

    def require(self, made: Workspace, settings: Settings, repository: Path) -> None:
        require_pillow(settings, "a video's pipeline")

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        bootstrap.ensure("video")
        from bundle_client.annotated import require as require_out
        from bundle_client.video import require

        (source,) = asked
        out = arguments.load(environment).out
        with _as_user_error(source):
            require(source)
        with _as_user_error("OUT"):
            if out:
                require_out(out)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        return server.watch(self.ensemble, asked[0], environment)

    def golden(self, made: Workspace) -> list[Question]:
        """Each is a sequence of its own."""
        from scripts.steps.samples import varied  # which loads Pillow

        return [self.question(file) for file in varied()[:GOLDEN]]

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        """That they are probabilities: the network was checked in its own pipeline."""
        rows = [self.probabilities(each) for each in answers]
        whole = [row for row in rows if np.isfinite(row).all() and row.min() >= 0]
        return Agreement(len(rows), len(whole), 0)

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row: NDArray[Any] = answer["OUTPUT"][0]
        return row

    def gist(self, answer: Answer) -> Hashable:
        return int(answer["OUTPUT"].argmax())


@contextmanager
def _as_user_error(about: str) -> Iterator[None]:
    from bundle_client import SourceError

    try:
        yield
    except SourceError as fault:
        raise UserError(f"{about}: {fault.cause}", fault.remedy) from None


def configs(recipe: Video) -> dict[str, str]:
    """Path in the repository -> text."""
    models = recipe.models
    return {
        f"{models.ensemble}/config.pbtxt": ensemble(recipe, GPU.ending),
        f"{models.ensemble}/configs/cpu.pbtxt": ensemble(recipe, CPU.ending),
        f"{models.smoothing}/config.pbtxt": smoothing(recipe),
    }


# As many classes as the network has that is live.
PROBABILITIES = [-1]
FRAMES = Tensor("FRAMES", "INT32", [1])


def ensemble(recipe: Video, engine: str) -> str:
    models = recipe.models
    where = {CPU.ending: ".", GPU.ending: ";\nwith the network on a GPU."}[engine]
    example = infer.packed(recipe.question(PICTURE), infer.alone(KEEPERS_SEQUENCE))
    return pbtxt.config(
        "A frame of a sequence, as the bytes of an image file -> the probability of each class,"
        f" smoothed over\nthe sequence, and how many frames that is{where}",
        models.ensemble,
        pbtxt.platform("ensemble"),
        1,
        pbtxt.inputs(Tensor("INPUT", "UINT8", [-1])),
        pbtxt.outputs(Tensor("OUTPUT", "FP32", PROBABILITIES, labels=pbtxt.LABELS), FRAMES),
        NEWEST_VERSION,
        pbtxt.steps(
            Step(models.preprocessing, {"INPUT_0": "INPUT"}, {"OUTPUT_0": "pixels"}),
            Step(f"{models.network}_{engine}", {"input": "pixels"}, {"output": "scores"}),
            Step(models.postprocessing, {"INPUT_0": "scores"}, {"OUTPUT_0": "probabilities"}),
            Step(
                models.smoothing,
                {"INPUT_0": "probabilities"},
                {"OUTPUT_0": "OUTPUT", FRAMES.name: FRAMES.name},
            ),
        ),
        pbtxt.parameter(EXAMPLE, example, "A request that it answers: a sequence of one frame."),
    )


def smoothing(recipe: Video) -> str:
    return pbtxt.config(
        "The probabilities of a frame -> those of its sequence so far: a moving average. No warmup:"
        " nothing\nin it is slow at first.",
        recipe.models.smoothing,
        pbtxt.backend("python"),
        recipe.max_batch,
        pbtxt.inputs(Tensor("INPUT_0", "FP32", PROBABILITIES)),
        pbtxt.outputs(Tensor("OUTPUT_0", "FP32", PROBABILITIES), FRAMES),
        NEWEST_VERSION,
        pbtxt.instances(1, "CPU", "One, which knows how many streams there are."),
        pbtxt.sequences(recipe.idle_s, PLACES_PER_STREAM * recipe.streams),
    )
