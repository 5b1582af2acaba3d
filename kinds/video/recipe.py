"""Frames of a video -> what they show, smoothed over time, by the network of another pipeline."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from bundle_serving.agreement import Agreement
from bundle_serving.infer import Answer, Question
from kinds.video.serving.smoothing import RULES, Rules
from scripts import bootstrap
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.recipes import configs
from scripts.recipes.layout import Engine, Layout
from scripts.recipes.parts import Count, Models, set_most
from scripts.recipes.pictures import OfPictures, require_pillow
from scripts.recipes.recipe import Contents, Name, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings

# Sequences that Triton keeps: the model refuses what is too much, Triton would let it wait.
PLACES_PER_STREAM = 16
GOLDEN = 4


class VideoModels(Models):
    smoothing: Name


class Video(OfPictures):
    """An image file, one of a sequence -> the probability of each class, over the sequence."""

    kind: Literal["video"]
    models: VideoModels
    labels: Name  # the ensemble whose models these are
    smoothing: Annotated[float, Field(gt=0, le=1)]
    streams: Count
    idle_s: Annotated[float, Field(gt=0)]
    max_batch: Count | None = None  # left out: as the config of `smoothing` says

    example: ClassVar[str] = "video.yaml"
    asked_about: ClassVar[str] = "VIDEO"

    @property
    def model_names(self) -> dict[str, str]:
        return {"ensemble": self.models.ensemble, "smoothing": self.models.smoothing}

    def adapt(self, member: Any) -> None:
        if self._set_streams(member):
            set_most(member, self.max_batch)

    def fit(self, member: Any, made: Workspace, layout: Layout) -> bool:
        return self._set_streams(member)

    def _set_streams(self, member: Any) -> bool:
        if member.name != self.models.smoothing:
            return False
        sequences = member.sequence_batching
        sequences.max_sequence_idle_microseconds = round(self.idle_s * 1_000_000)
        sequences.oldest.max_candidate_sequences = PLACES_PER_STREAM * self.streams
        return True

    def programs(self, layout: Layout) -> list[str]:
        return [self.models.smoothing]

    def list_borrowed(self, engine: Engine) -> list[str]:
        models = self.models
        return [models.preprocessing, f"{models.network}_{engine.ending}", models.postprocessing]

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        rules = Rules(self.smoothing, self.streams, self.idle_s)
        return {self.models.smoothing: {RULES: json.dumps(vars(rules), indent=2) + "\n"}}

    @property
    def labels_owner(self) -> str:
        return self.labels

    def label_lines(self, made: Workspace, repository: Path) -> str:
        """None where that is not laid out: where answers are only compared."""
        of_the_network = repository / self.labels / configs.LABELS
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
                require_out(out, source)

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        return server.watch(self.ensemble, asked[0], environment)

    def golden(self, made: Workspace) -> list[Question]:
        """Each is a sequence of its own."""
        from scripts.artefacts.samples import make_varied  # which loads Pillow

        return [self.question(file) for file in make_varied()[:GOLDEN]]

    def judge(self, made: Workspace, answers: Sequence[Answer]) -> Agreement:
        """That they are probabilities: the network was checked in its own pipeline."""
        rows = [self.probabilities(each) for each in answers]
        whole = [row for row in rows if np.isfinite(row).all() and row.min() >= 0]
        return Agreement(len(rows), len(whole), 0)


@contextmanager
def _as_user_error(about: str) -> Iterator[None]:
    from bundle_client import SourceError

    try:
        yield
    except SourceError as fault:
        raise UserError(f"{about}: {fault.cause}", fault.remedy) from None
