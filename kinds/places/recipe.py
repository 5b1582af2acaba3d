"""Pixels -> the kind of place they show."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bundle_serving.infer import Answer, Question
from kinds.places.export import Checkpoint, categories_beside
from scripts.artefacts.shapes import of_pixels
from scripts.artefacts.step import Step
from scripts.artefacts.workspace import Workspace
from scripts.base.errors import UserError
from scripts.evaluation.labelled import Item, Labelled, read_files
from scripts.recipes import configs
from scripts.recipes.asking import Asked, about_files
from scripts.recipes.layout import Engine, Layout
from scripts.recipes.parts import Channels, Count, ThreeSteps
from scripts.recipes.recipe import Contents, Export, Part, Server
from scripts.settings import arguments
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from bundle_client import Client, Label, Result, Source

EXPORT = Step("kinds.places.export")


class Squares(Part):
    """How pixels are turned into what the network was trained on."""

    side: Count
    mean: Channels
    std: Channels


class Places(ThreeSteps):
    """Pixels, height by width by 3 -> the likeliest classes."""

    kind: Literal["places"]
    source: str
    weights: str = ""
    # Left out: as the models' configs say.
    classes: Count | None = None
    answers: Count | None = None
    pictures: Squares

    example: ClassVar[str] = "places.yaml"

    @property
    def model_names(self) -> dict[str, str]:
        models = self.models
        return {
            "ensemble": models.ensemble,
            "preprocessing": models.preprocessing,
            "network": models.network,
            "postprocessing": models.postprocessing,
        }

    @property
    def class_count(self) -> int:
        return self.classes or int(configs.read_model(self.models.network).output[0].dims[0])

    def adapt(self, member: Any) -> None:
        super().adapt(member)
        side, scores = self.pictures.side, [self.classes] if self.classes else []
        square = [3, side, side]
        configs.set_dims(member, {"pre_output": square, "input_0": square})
        configs.set_dims(member, {"output_0": scores, "post_input": scores})
        if self.answers and member.name == self.models.postprocessing:
            configs.set_parameters(member, answers=self.answers)

    def network_model(self, engine: Engine) -> str:
        return self.models.network

    def additions(self, made: Workspace, layout: Layout) -> Contents:
        squares = json.dumps(self.pictures.model_dump(), indent=2) + "\n"
        return {
            self.models.preprocessing: {"squares.json": squares},
            self.models.postprocessing: {configs.LABELS: made.onnx / configs.LABELS},
        }

    def label_lines(self, made: Workspace, repository: Path) -> str:
        return (made.onnx / configs.LABELS).read_text()

    def export(self, settings: Settings, engine: Engine) -> Export:
        weights = str(settings.value(self.setting)) if self.override(settings) else self.weights
        spec = Checkpoint(
            self.source,
            weights,
            self.class_count,
            self.pictures.model_dump(mode="json"),
            engine.export,
            categories_beside(weights),
        )
        return Export(EXPORT, spec, self.setting not in settings.given)

    def shapes(self, made: Workspace, settings: Settings) -> dict[str, str]:
        return of_pixels("input_0", self.pictures.side, self.batch.optimal, self.most)

    def require_asked(self, asked: Sequence[str], environment: Mapping[str, str]) -> None:
        if environment.get("OUT"):
            raise UserError(
                f"OUT is given, which takes no answers of {self.ensemble}",
                "leave it out; JSON=1 prints lines for a file",
            )

    def ask(self, server: Server, asked: Sequence[str], environment: Mapping[str, str]) -> int:
        from bundle_client import Result
        from bundle_client.sources import PICTURES, name_in_errors, name_of, read

        top = arguments.load(environment).top

        def place(client: Client, source: Source) -> Result:
            with name_in_errors(source):
                pixels = decode_file(read(source))
                began = time.perf_counter()
                found = client.place(pixels, self.ensemble)[:top]
                return Result(name_of(source), found, (time.perf_counter() - began) * 1e3)

        return about_files(server, asked, environment, PICTURES, place)

    def read_labelled(self, path: Path) -> Labelled:
        from bundle_client.sources import PICTURES

        return read_files(path, PICTURES.has)

    def guess(self, asked: Asked, item: Item) -> Sequence[Label]:
        return asked.client.place(decode_file(Path(item.source).read_bytes()), asked.model)

    def question(self, source: bytes) -> Question:
        return {"INPUT": decode_file(source).astype(np.float32)[None]}

    def probabilities(self, answer: Answer) -> NDArray[Any]:
        row = np.full(self.class_count, np.nan, np.float32)
        for entry in answer["postprocess_result"][0]:
            probability, number, _ = entry.decode().split(":", 2)
            row[int(number)] = float(probability)
        return row


# The network sees 256x256. Sent as floats, more would exceed the size of a request.
LARGEST = (2048, 2048)


def decode_file(file: bytes) -> NDArray[np.uint8]:
    from PIL import Image

    from bundle_client import SourceError
    from bundle_serving import pictures

    try:
        with Image.open(io.BytesIO(file)) as image:
            whole = pictures.decode(image)
            whole.thumbnail(LARGEST)
            return np.asarray(whole)
    except Exception:  # Pillow's decoders raise many kinds
        raise SourceError("not a readable picture", "use another") from None
