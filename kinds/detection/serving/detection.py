"""What a detector gives for each of its anchors -> boxes in the picture's own pixels, as
torchvision's SSD and transformers' DETR make them. Pure functions: no Triton here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.scores import sigmoid, softmax

Floats = NDArray[np.float32]
Numbers = NDArray[np.intp]

# In a row of the network's answer: how its box is shifted and stretched, then a score per class,
# the background's first.
BOX = 4
# In what unit: a tenth of the anchor's size, and a fifth of its logarithm.
UNITS = np.array([10, 10, 5, 5], np.float32)
# The most that a box is larger than its anchor, so that the exponential stays finite.
LARGEST = math.log(1000 / 16)

# Which classes of an anchor count.
EACH = "each"  # those whose score does; together, and with the background, they are certain
LIKELIEST = "likeliest"  # of such ones, only the one with the best score
INDEPENDENT = "independent"  # those whose score does, whatever the others have; no background


@dataclass(frozen=True)
class Rules:
    """Which boxes count."""

    threshold: float  # their score is above it
    overlap: float  # of two of a class that share more than this of their area, the better
    candidates: int  # of each class, before that
    most: int  # of a picture, after it
    labels: str = EACH

    @classmethod
    def load(cls, path: Path) -> Rules:
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Found:
    """In one picture, best first."""

    boxes: Floats  # [n, 4]: left, top, right, bottom
    classes: Numbers
    scores: Floats


@dataclass(frozen=True)
class Detection:
    """From the network's answer to the request's."""

    side: int  # of the square that the network sees
    anchors: Floats  # in that square
    names: Sequence[str]  # by class, the background's too
    rules: Rules

    @classmethod
    def load(cls, folder: Path, side: int) -> Detection:
        names = (folder / "labels.txt").read_text().splitlines()
        return cls(side, np.load(folder / "anchors.npy"), names, Rules.load(folder / "rules.json"))

    def answer(self, rows: Floats, sizes: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Rows [pictures, anchors, 4 + classes], and each picture's height and width. A picture
        with fewer boxes than another one of its request ends with boxes of score 0."""
        each = [self.find(*picture) for picture in zip(rows, sizes, strict=True)]
        return pad_answers(each, self.names)

    def find(self, rows: Floats, size: Sequence[int] | NDArray[np.int64]) -> Found:
        scores = foreground(rows, self.rules.labels)
        if self.rules.labels == LIKELIEST:
            scores = likeliest(scores)
        anchors, classes = candidates(scores, self.rules)
        boxes = decode_boxes(rows[anchors, :BOX], self.anchors[anchors]).clip(0, self.side)
        best = scores[anchors, classes]
        kept = survivors(boxes, classes, self.rules)
        height, width = size
        scale: NDArray[Any] = np.array([width, height, width, height], np.float32) / self.side
        return Found(boxes[kept] * scale, classes[kept] + 1, best[kept])


def foreground(rows: Floats, labels: str = EACH) -> Floats:
    """The probability of each class but the background, for each anchor."""
    if labels == INDEPENDENT:
        return sigmoid(rows[..., BOX + 1 :])
    return softmax(rows[..., BOX:])[..., 1:]


def likeliest(scores: Floats) -> Floats:
    """Without those that are not the best of their anchor."""
    best = scores.argmax(axis=1)[:, None]
    return np.where(np.arange(scores.shape[1]) == best, scores, np.float32(0))


def candidates(scores: Floats, rules: Rules) -> tuple[Numbers, Numbers]:
    """Anchors and classes whose score counts, best first: so many of each class."""
    anchors, classes = np.nonzero(scores > rules.threshold)
    order = np.argsort(-scores[anchors, classes], kind="stable")
    anchors, classes = anchors[order], classes[order]
    by_class = np.argsort(classes, kind="stable")
    firsts = np.searchsorted(classes[by_class], classes[by_class])
    place = np.empty_like(by_class)
    place[by_class] = np.arange(len(by_class)) - firsts
    enough = place < rules.candidates
    return anchors[enough], classes[enough]


def decode_boxes(shifts: Floats, anchors: Floats) -> Floats:
    """Boxes [n, 4] of corners."""
    sizes = anchors[:, 2:] - anchors[:, :2]
    centres = anchors[:, :2] + sizes / 2
    shifts = shifts / UNITS
    centres = centres + shifts[:, :2] * sizes
    halves = np.exp(np.minimum(shifts[:, 2:], LARGEST)) * sizes / 2
    return np.concatenate([centres - halves, centres + halves], axis=1)


def survivors(boxes: Floats, classes: Numbers, rules: Rules) -> Numbers:
    """Which boxes stay, given best first: none that overlaps a better one of its class. Each is
    compared with its class alone: anybody may send rows in which all classes count."""
    alike = {each: np.flatnonzero(classes == each) for each in np.unique(classes)}
    left = np.ones(len(boxes), bool)
    kept: list[int] = []
    for best in range(len(boxes)):
        if left[best] and len(kept) < rules.most:
            kept.append(best)
            others = alike[classes[best]]
            left[others] &= ~(overlaps(boxes[best], boxes[others]) > rules.overlap)
    return np.array(kept, np.intp)


def overlaps(box: Floats, others: Floats) -> Floats:
    """The share of their area that the box and each of the others have in common."""
    corners = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = corners.clip(0, None).prod(axis=1)
    whole = area(box) + area(others) - common
    share: Floats = common / np.maximum(whole, np.finfo(np.float32).tiny)
    return share


def area(boxes: Floats) -> Floats:
    sides: Floats = (boxes[..., 2:] - boxes[..., :2]).prod(axis=-1)
    return sides


def pad_answers(each: Sequence[Found], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The tensors of an answer."""
    most = max(len(found.scores) for found in each)
    answer: Mapping[str, NDArray[Any]] = {
        "BOXES": np.zeros((len(each), most, BOX), np.float32),
        "LABELS": np.full((len(each), most), b"", np.object_),
        "SCORES": np.zeros((len(each), most), np.float32),
    }
    for row, found in enumerate(each):
        count = len(found.scores)
        answer["BOXES"][row, :count] = found.boxes
        answer["LABELS"][row, :count] = [names[number].encode() for number in found.classes]
        answer["SCORES"][row, :count] = found.scores
    return dict(answer)
