"""Requests for what is where in a picture, and their answers, on the wire."""

from dataclasses import dataclass
from typing import Any

from .wire import as_text, not_understood

MODEL = "detection"
OUTPUTS = ("BOXES", "LABELS", "SCORES")


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


def read_boxes(answer: Any) -> tuple[Box, ...]:
    boxes, labels, scores = map(answer.as_numpy, OUTPUTS)
    if boxes is None or labels is None or scores is None or not len(boxes) == 1:
        raise not_understood("no boxes, labels and scores in it")
    return tuple(
        Box(as_text(label), float(score), *map(float, box))
        for box, label, score in zip(boxes[0], labels[0], scores[0], strict=True)
    )
