"""Requests and answers on the wire; nothing here opens a connection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ClientError, ServerFault


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


def question(tensors: Any, model: str, picture: bytes, top: int) -> dict[str, Any]:
    """The arguments of `infer`, which are the same for all of tritonclient's clients.

    `tensors` is tritonclient.http or tritonclient.grpc, each with input and output classes of
    its own.
    """
    # With a class count, Triton sends the labels themselves, so no label file is needed here.
    output = tensors.InferRequestedOutput("OUTPUT", class_count=top)
    return _of_picture(tensors, model, picture, [output])


def question_for(
    tensors: Any, model: str, picture: bytes, outputs: Sequence[str]
) -> dict[str, Any]:
    """The same for answers that are no labels."""
    wanted = [tensors.InferRequestedOutput(name) for name in outputs]
    return _of_picture(tensors, model, picture, wanted)


def _of_picture(tensors: Any, model: str, picture: bytes, outputs: list[Any]) -> dict[str, Any]:
    import numpy as np

    array = np.frombuffer(picture, dtype=np.uint8)[np.newaxis]
    tensor = tensors.InferInput("INPUT", list(array.shape), "UINT8")
    tensor.set_data_from_numpy(array)
    return {"model_name": model, "inputs": [tensor], "outputs": outputs}


def labels(answer: Any) -> tuple[Label, ...]:
    """The labels in a tritonclient `InferResult`, or in an answer's JSON."""
    if not hasattr(answer, "as_numpy"):
        return labels_in_json(answer, "OUTPUT")
    return labels_of(answer, "OUTPUT")


def labels_in_json(answer: Any, name: str) -> tuple[Label, ...]:
    try:
        entries = {output["name"]: output["data"] for output in answer["outputs"]}[name]
    except (LookupError, TypeError):
        entries = []
    if not entries:
        raise not_understood("no labels in it")
    return tuple(parse_label(entry) for entry in entries)


def labels_of(answer: Any, name: str) -> tuple[Label, ...]:
    output = answer.as_numpy(name)
    if output is None or not output.size:
        raise not_understood("no labels in it")
    return tuple(parse_label(entry) for entry in output.ravel())


def parse_label(entry: Any) -> Label:
    """Parses "probability:index:label"; the label may contain colons or be missing."""
    probability, _, rest = as_text(entry).partition(":")
    index, _, label = rest.partition(":")
    try:
        return Label(int(index), label, float(probability))
    except ValueError:
        raise not_understood(f"{entry!r} instead of a label") from None


def as_text(entry: Any) -> str:
    """From BYTES; a str comes from a server that answers only in JSON."""
    return entry.decode("utf-8", errors="replace") if isinstance(entry, bytes) else str(entry)


def not_understood(what: str) -> ServerFault:
    return ServerFault(
        f"cannot parse the answer: {what}",
        "check that the server is Triton and the model a classifier",
    )
