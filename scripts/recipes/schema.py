"""What a pipeline is, read from its recipe, strictly: what is not understood is refused.

recipe = load(Path("recipes/resnet50.yaml"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from scripts.base.errors import UserError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
Count = Annotated[int, Field(ge=1)]
Channels = tuple[float, float, float]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Models(Part):
    """The folders of the repository, in the order of a request."""

    ensemble: Name
    preprocessing: Name
    network: Name
    postprocessing: Name


class Pictures(Part):
    resize: Count
    crop: Count
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: Channels
    std: Channels


class Batch(Part):
    max: Count
    optimal: Count
    preferred: tuple[Count, ...]
    max_delay_us: Annotated[int, Field(ge=0)]


class Instances(Part):
    preprocessing: Count
    network: Count
    network_on_gpu: Count


class Image(Part):
    """An image file -> the probability of each class."""

    kind: Literal["image"]
    models: Models
    source: str  # torchvision/ARCH, or the path of an .onnx file
    weights: str = "default"
    labels: str = ""  # torchvision, or the path of a file; else an ONNX file's classes have numbers
    classes: Count
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    pictures: Pictures
    batch: Batch
    instances: Instances
    warmup: str


class Words(Part):
    """How texts become tokens."""

    task_prefix: str = ""
    max_seq_len: Annotated[int, Field(ge=8)]


class TextBatch(Batch):
    optimal_tokens: Count


class Text(Part):
    """A text -> its label, and how sure that is."""

    kind: Literal["text"]
    models: Models
    source: str  # a hub's name, or a folder with what a hub would give
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    words: Words
    batch: TextBatch
    instances: Instances
    warmup: Annotated[str, Field(pattern=r"^[ -~]{1,100}$")]

    @property
    def classes(self) -> int:
        return len(self.labels)


class Squares(Part):
    """How arrays of pixels become what the network was trained with."""

    side: Count
    mean: Channels
    std: Channels


class Array(Part):
    """Pixels, height by width by 3 -> the likeliest classes."""

    kind: Literal["array"]
    models: Models
    source: str
    classes: Count
    answers: Count
    pictures: Squares
    batch: Batch
    instances: Instances


class CascadeModels(Part):
    ensemble: Name
    preprocessing: Name
    first: Name
    choice: Name
    then: Name


class CascadeInstances(Part):
    first: Count
    first_on_gpu: Count
    choice: Count


class Cascade(Part):
    """An image file -> the probability of each class, by a small network or a large one."""

    kind: Literal["cascade"]
    models: CascadeModels
    source: str
    threshold: Annotated[float, Field(ge=0, le=1)]
    classes: Count
    crop: Count
    batch: Batch
    instances: CascadeInstances


Recipe = Annotated[Image | Text | Array | Cascade, Field(discriminator="kind")]
Kind = TypeVar("Kind", Image, Text, Array, Cascade)
KINDS: dict[str, type[Part]] = {"image": Image, "text": Text, "array": Array, "cascade": Cascade}
EXAMPLES = {
    "image": "resnet50.yaml",
    "text": "sentiment.yaml",
    "array": "places365.yaml",
    "cascade": "cascade.yaml",
}
RECIPE: TypeAdapter[Recipe] = TypeAdapter(Recipe)


def load(path: Path) -> Recipe:
    try:
        return RECIPE.validate_python(_read(path))
    except ValidationError as fault:
        raise _refused(path, fault.errors()[0]) from None


def load_as(path: Path, kind: type[Kind]) -> Kind:
    recipe = load(path)
    if not isinstance(recipe, kind):
        raise UserError(
            f"{path} is a recipe of another kind ({type(recipe).__name__.lower()})",
            f"name one of kind {kind.__name__.lower()}",
        )
    return recipe


def _read(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text())
    except OSError as fault:
        raise UserError(
            f"no recipe to be read at {path} ({fault.strerror})", "see recipes/"
        ) from None
    except yaml.YAMLError as fault:
        detail = " ".join(str(fault).split())
        raise UserError(f"{path} is no YAML ({detail})", "mend that line") from None


def _refused(path: Path, error: ErrorDetails) -> UserError:
    kind, *keys = error["loc"] or ("",)
    key = ".".join(map(str, keys)) or "the recipe"
    if error["type"] == "extra_forbidden":
        allowed = ", ".join(_part(KINDS[str(kind)], keys[:-1]).model_fields)
        return UserError(f"{path}: {key} is not known", f"what can be said there: {allowed}")
    if error["type"] == "missing":
        return UserError(f"{path}: {key} is missing", f"say it; recipes/{EXAMPLES[str(kind)]} does")
    if error["type"].startswith("union_tag"):
        return UserError(f"{path}: kind is none of {', '.join(KINDS)}", "say which it is")
    message = error["msg"]
    return UserError(f"{path}: {key}: {error['input']!r}", message[:1].lower() + message[1:])


def _part(kind: type[Part], keys: list[int | str]) -> type[Part]:
    found: Any = kind
    for key in keys:
        found = found.model_fields[key].annotation
    return found  # type: ignore[no-any-return]
