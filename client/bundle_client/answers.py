"""What the server answers, as a program wants it: labels, boxes, areas, vectors; and how requests
and answers look on the wire. Nothing here opens a connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import (
    ClientError,
    PictureRefused,
    ServerBusy,
    ServerFault,
    ServerUnreachable,
    SourceError,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PIXELS = "give numbers [height, width, 3], as RGB from 0 to 255"
RESTARTS = "it restarts by itself; try again in a few seconds"


@dataclass(frozen=True, slots=True)
class Form:
    """How models of a kind are asked: one input, and the outputs that are wanted."""

    model: str  # of the project's pipeline
    name: str
    datatype: str
    outputs: tuple[str, ...]

    @property
    def is_of_labels(self) -> bool:
        """Whether labels are all that is wanted, for which the standard library will do."""
        return self.outputs == (SCORES,)


SCORES = "OUTPUT"  # of which Triton makes labels
LABELS = Form("", "INPUT", "UINT8", (SCORES,))  # of the main pipeline
SOUNDS = Form("sounds", "INPUT", "UINT8", (SCORES,))
FRAMES = Form("video", "INPUT", "UINT8", (SCORES, "FRAMES"))
ARRAYS = Form("places_ensemble", "INPUT", "FP32", ("postprocess_result",))
BOXES = Form("detection", "INPUT", "UINT8", ("BOXES", "LABELS", "SCORES"))
MASKS = Form("segmentation", "INPUT", "UINT8", ("MASK", "LABELS", "SHARES"))
TEXTS = Form("sentiment_ensemble", "QUERY", "BYTES", ("LABEL", "SCORE"))
VECTORS = Form("embedding", "image", "BYTES", ("embedding", "error", "network"))


@dataclass(frozen=True, slots=True)
class Label:
    """One class of the model; `label` is empty when the server has no label file."""

    index: int
    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Result:
    """The answer for one source: labels, likeliest first, or an error.

    `ms` is the time from sending the picture to receiving the answer.
    """

    source: str
    labels: tuple[Label, ...] = ()
    ms: float = 0.0
    error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """Something in a picture: its label, its score from 0 to 1, and where it is, in pixels of the
    upright picture."""

    label: str
    score: float
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Detected:
    """What is in a picture, the best first; `ms` as in a `Result`."""

    source: str
    boxes: tuple[Box, ...] = ()
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Area:
    """All pixels of a class: its number in the mask, its label, and its share of the picture, from
    0 to 1."""

    index: int
    label: str
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Segmented:
    """The number of each pixel's class [height, width], in the size that the network saw the
    upright picture in, and the classes that are there, the largest first; `ms` as in a `Result`."""

    source: str
    mask: "NDArray[np.uint8]"
    areas: tuple[Area, ...]
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Sentiment:
    """The sentiment of a text, and its score from 0 to 1."""

    text: str
    label: str
    score: float


def nothing() -> "NDArray[np.float32]":
    import numpy as np

    return np.empty(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """A picture as a vector of length 1, or an error. The scalar product of two vectors says how
    similar their pictures are, if both are from the same `network`."""

    source: str
    vector: "NDArray[np.float32]" = field(default_factory=nothing)
    network: str = ""
    ms: float = 0.0
    error: ClientError | None = None


def question(tensors: Any, form: Form, model: str, asked: Any, top: int = 0) -> dict[str, Any]:
    """The arguments of `infer`, which are the same for all of tritonclient's clients.

    `tensors` is tritonclient.http or tritonclient.grpc, each with input and output classes of
    its own.
    """
    array = as_array(form.datatype, asked)
    tensor = tensors.InferInput(form.name, list(array.shape), form.datatype)
    tensor.set_data_from_numpy(array)
    # With a class count, Triton sends the labels themselves, so no label file is needed here.
    outputs = [
        tensors.InferRequestedOutput(name, class_count=top if name == SCORES else 0)
        for name in form.outputs
    ]
    return {"model_name": model, "inputs": [tensor], "outputs": outputs}


def as_array(datatype: str, asked: Any) -> "NDArray[Any]":
    """Of the bytes of a file, of several texts, or of pixels [height, width, 3]."""
    import numpy as np

    if datatype == "UINT8":
        return np.frombuffer(asked, np.uint8)[np.newaxis]
    if datatype == "FP32":
        return as_pixels(asked)[np.newaxis]
    try:
        texts = [asked] if isinstance(asked, bytes) else [text.encode() for text in asked]
    except UnicodeEncodeError as exc:
        raise SourceError(f"the text cannot be sent ({exc})", "leave that character out") from exc
    return np.array([[text] for text in texts], np.object_)


def as_pixels(asked: Any) -> "NDArray[np.float32]":
    import numpy as np

    try:
        pixels = np.asarray(asked, np.float32)
    except ValueError as exc:
        raise SourceError(f"these are not pixels ({exc})", PIXELS) from exc
    if pixels.ndim != 3:
        raise SourceError(f"an array {list(pixels.shape)} is not a picture", PIXELS)
    return pixels


def read_labels(answer: Any, name: str = SCORES) -> tuple[Label, ...]:
    """The labels in a tritonclient `InferResult`, or in an answer's JSON."""
    if hasattr(answer, "as_numpy"):
        output = answer.as_numpy(name)
        entries = [] if output is None else output.ravel()
    else:
        try:
            entries = {output["name"]: output["data"] for output in answer["outputs"]}[name]
        except (LookupError, TypeError):
            entries = []
    if not len(entries):
        raise not_understood("no labels in it")
    return tuple(map(parse_label, entries))


def parse_label(entry: Any) -> Label:
    """Parses "probability:index:label"; the label may contain colons or be missing."""
    probability, _, rest = as_text(entry).partition(":")
    index, _, label = rest.partition(":")
    try:
        return Label(int(index), label, float(probability))
    except ValueError:
        raise not_understood(f"{entry!r} instead of a label") from None


def read_boxes(answer: Any) -> tuple[Box, ...]:
    boxes, labels, scores = take(answer, BOXES, 1, "no boxes, labels and scores in it")
    return tuple(
        Box(as_text(label), float(score), *map(float, box))
        for box, label, score in zip(boxes[0], labels[0], scores[0], strict=True)
    )


def read_mask(answer: Any) -> tuple["NDArray[np.uint8]", tuple[Area, ...]]:
    masks, labels, shares = take(answer, MASKS, 1, "no mask, labels and shares in it")
    areas = [
        Area(index, as_text(label), float(share))
        for index, (label, share) in enumerate(zip(labels[0], shares[0], strict=True))
        if share
    ]
    return masks[0], tuple(sorted(areas, key=lambda area: -area.share))


def read_sentiments(texts: tuple[str, ...], answer: Any) -> list[Sentiment]:
    labels, scores = take(answer, TEXTS, len(texts), "no label and score for each text")
    return [
        Sentiment(text, as_text(label), float(score))
        for text, label, score in zip(texts, labels.ravel(), scores.ravel(), strict=True)
    ]


def read_vector(source: str, answer: Any, ms: float) -> Embedding:
    """Raises `PictureRefused` if the service refused this picture: it marks it and answers the
    others of the batch."""
    vectors, errors, networks = take(answer, VECTORS, 1, "no vector for the picture")
    if refusal := as_text(errors.item()):
        cause, _, remedy = refusal.partition("; ")
        raise PictureRefused(cause, remedy or "try another picture")
    return Embedding(source, vectors[0], as_text(networks.item()), ms)


def take(answer: Any, form: Form, count: int, missing: str) -> list[Any]:
    """Its tensors, each with so many rows."""
    found = [answer.as_numpy(name) for name in form.outputs]
    if any(each is None or len(each) != count for each in found):
        raise not_understood(missing)
    return found


def as_text(entry: Any) -> str:
    """From BYTES; a str comes from a server that answers only in JSON."""
    return entry.decode("utf-8", errors="replace") if isinstance(entry, bytes) else str(entry)


def not_understood(what: str) -> ServerFault:
    return ServerFault(
        f"cannot parse the answer: {what}",
        "check that the server is Triton and the model a classifier",
    )


@contextmanager
def of_the_service() -> Iterator[None]:
    """The remedy if the service, which is separate from the server, does not answer."""
    try:
        yield
    except ServerUnreachable as exc:
        remedy = f"start the service (`make similar`); if it has just exited, {RESTARTS}"
        raise ServerUnreachable(exc.cause, remedy) from exc
    except ServerBusy:
        raise
    except ServerFault as exc:
        raise ServerFault(exc.cause, f"if the service has exited, {RESTARTS}") from exc
