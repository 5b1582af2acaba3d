"""Whether two runs of a network agree. Pure functions on their scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.detection import BOX, EACH, INDEPENDENT, UNITS, foreground, overlaps
from bundle_serving.infer import Answer
from bundle_serving.scores import READINGS

DETECTION = "detection"  # of a network that answers with a row for each of its anchors
INDEPENDENT_DETECTION = "detection of independent labels"
DETECTIONS = {DETECTION: EACH, INDEPENDENT_DETECTION: INDEPENDENT}
TABLE = "table"  # of a model that answers a row of numbers with numbers of any size
SEGMENTATION = "segmentation"  # of one that answers with the number of a class for each pixel

# Two classes this close in the reference are a tie: their order means nothing.
TIE = 0.02

# A class among the likeliest, as Triton writes it: 0.84:504:COFFEE MUG.
CLASS = re.compile(rb"([0-9.eE+-]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Bound:
    """How far a network may deviate from its reference."""

    difference: float  # between probabilities, over all classes and pictures
    top1: float = 1.0  # the share of pictures with the same label

    def __str__(self) -> str:
        share = "" if self.top1 == 1 else f"top-1 on {self.top1:.0%}, "
        return f"bound: {share}{self.difference:g}"


@dataclass(frozen=True)
class Agreement:
    pictures: int
    top1_equal: int
    max_difference: float  # between probabilities, over all classes and pictures

    def within(self, bound: Bound) -> bool:
        enough = self.top1_equal >= bound.top1 * self.pictures
        return enough and self.max_difference <= bound.difference

    def __str__(self) -> str:
        return (
            f"top-1 equal on {self.top1_equal} of {self.pictures} pictures, "
            f"probabilities within {self.max_difference:.2g}"
        )

    def record(self, bound: Bound) -> dict[str, Any]:
        return asdict(self) | {"bound": asdict(bound)}


class OfRows(Agreement):
    def __str__(self) -> str:
        return (
            f"equal on {self.top1_equal} of {self.pictures} rows, numbers within "
            f"{self.max_difference:.2g}"
        )


class OfMasks(Agreement):
    """Its difference is the share of a picture's pixels that are of another class."""

    def __str__(self) -> str:
        return (
            f"{SAME_PIXELS:.0%} of the pixels equal on {self.top1_equal} of {self.pictures} "
            f"pictures, at most {self.max_difference:.2%} of them another class"
        )


def compare(
    reference: NDArray[Any], scores: NDArray[Any], answers: str = "single-label"
) -> Agreement:
    """Compares scores [pictures, classes] with the reference's."""
    if not np.isfinite(scores).all():
        return Agreement(len(reference), 0, float("inf"))
    if answers in DETECTIONS:
        return _compare_rows(reference, scores, DETECTIONS[answers])
    if answers == TABLE:
        return of_rows(reference, scores)
    if answers == SEGMENTATION:
        return of_masks(reference, scores)
    expected, actual = READINGS[answers](reference), READINGS[answers](scores)
    chosen = np.take_along_axis(expected, actual.argmax(axis=1, keepdims=True), axis=1)[:, 0]
    equal = expected.max(axis=1) - chosen <= TIE
    return Agreement(len(reference), int(equal.sum()), float(np.abs(expected - actual).max()))


def _compare_rows(reference: NDArray[Any], rows: NDArray[Any], labels: str) -> Agreement:
    """Of a detector: whether the likeliest box of all is the same. The difference is also that
    between boxes, in their anchors' sizes."""
    if labels == INDEPENDENT:
        rows = np.stack([_in_order(*each) for each in zip(reference, rows, strict=True)])
    expected, actual = (
        foreground(each, labels).reshape(len(each), -1) for each in (reference, rows)
    )
    found = compare(expected, actual, "multi-label")
    moved = float(np.abs((reference[..., :BOX] - rows[..., :BOX]) / UNITS).max())
    return replace(found, max_difference=max(found.max_difference, moved))


def _in_order(reference: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Of each of the reference's rows the nearest: detectors of two stages, such as RT-DETR, order
    theirs by scores, and those that hardly differ change places."""
    return np.stack([rows[np.abs(rows - each).max(axis=1).argmin()] for each in reference])


def of_rows(reference: NDArray[Any], rows: NDArray[Any]) -> Agreement:
    # Triton's FIL backend gives single numbers without a dimension of their own.
    single = reference.shape == (*rows.shape, 1)
    compared = (reference, rows.reshape(reference.shape) if single else rows)
    expected, actual = ([{"": row} for row in numbers] for numbers in compared)
    return OfRows(**asdict(of_answers(expected, actual)))


def compare_known(
    reference: NDArray[Any], probabilities: NDArray[Any], answers: str = "single-label"
) -> Agreement:
    """Like compare, for probabilities of which an answer may have only some; the others are NaN. An
    answer without any is not judged."""
    judged = ~np.isnan(probabilities).all(axis=1)
    expected, actual = READINGS[answers](reference)[judged], probabilities[judged]
    if np.isinf(actual).any():
        return Agreement(len(expected), 0, float("inf"))
    if not len(expected):
        return Agreement(0, 0, 0.0)
    best = np.nanargmax(actual, axis=1)[:, None]
    chosen = np.take_along_axis(expected, best, axis=1)[:, 0]
    equal = expected.max(axis=1) - chosen <= TIE
    return Agreement(len(expected), int(equal.sum()), float(np.nanmax(np.abs(expected - actual))))


# Boxes of the same thing share this much of their area, and so many of a picture's are found again.
SAME, MOST = 0.8, 0.9


def of_boxes(reference: Sequence[Answer], answers: Sequence[Answer]) -> Agreement:
    """Compares boxes with the reference's, picture by picture: the best must be there again, and
    almost all of the others. The difference is between scores of the same."""
    pairs = [_same_boxes(*each) for each in zip(reference, answers, strict=True)]
    equal = sum(found[:1].all() and found.sum() >= MOST * len(found) for found, _ in pairs)
    return Agreement(len(pairs), int(equal), max(moved for _, moved in pairs))


def _same_boxes(expected: Answer, actual: Answer) -> tuple[NDArray[np.bool_], float]:
    """Which of the expected boxes are there, and the largest difference between the scores."""
    found, moved = [], [0.0]
    known = zip(*(expected[name][0] for name in ("BOXES", "LABELS", "SCORES")), strict=True)
    for box, label, score in known:
        of_label = actual["LABELS"][0] == label
        shares = overlaps(box, actual["BOXES"][0][of_label])
        found.append(bool(len(shares)) and shares.max() >= SAME)
        if found[-1]:
            moved.append(abs(float(actual["SCORES"][0][of_label][shares.argmax()] - score)))
    return np.array(found, np.bool_), max(moved)


# So many of a picture's pixels are of the same class again.
SAME_PIXELS = 0.99


def of_masks(reference: Iterable[NDArray[Any]], masks: Iterable[NDArray[Any]]) -> OfMasks:
    """Compares the classes of pixels with the reference's, picture by picture."""
    others = [
        float(np.mean(expected != mask)) if expected.shape == mask.shape else 1.0
        for expected, mask in zip(reference, masks, strict=True)
    ]
    equal = sum(share <= 1 - SAME_PIXELS for share in others)
    return OfMasks(len(others), equal, max(others))


def of_answers(reference: Sequence[Answer], answers: Sequence[Answer]) -> Agreement:
    """Compares whole answers, whatever pipeline gave them, with the same one's elsewhere. A
    difference is between numbers of answers that say the same, and a share of those above 1."""
    if reference and reference[0].keys() >= {"BOXES", "LABELS", "SCORES"}:
        return of_boxes(reference, answers)
    if reference and "MASK" in reference[0]:
        return of_masks(*([each["MASK"] for each in side] for side in (reference, answers)))
    found = [_measure_move(*each) for each in zip(reference, answers, strict=True)]
    moved = [each for each in found if each is not None]
    return Agreement(len(found), len(moved), max(moved, default=0.0))


def _measure_move(expected: Answer, actual: Answer) -> float | None:
    """None where they say different things."""
    if expected.keys() != actual.keys():
        return None
    furthest = 0.0
    for name, tensor in expected.items():
        pair = _side_by_side(tensor, actual[name])
        if pair is None or not np.isfinite(pair[1]).all():
            return None
        if not pair[0].size:
            continue
        one, other = pair / max(1.0, float(np.abs(pair[0]).max()))
        if one.max() - one[other.argmax()] > TIE:
            return None
        furthest = max(furthest, float(np.abs(one - other).max()))
    return furthest


def _side_by_side(expected: NDArray[Any], actual: NDArray[Any]) -> NDArray[np.float64] | None:
    """The numbers of both, in two rows; of classes, by their names. None where what is not a number
    differs."""
    if expected.dtype.kind == "S" and actual.dtype.kind == "S":
        one, other = _classes(expected), _classes(actual)
        if not (one and other):
            return np.empty((2, 0)) if np.array_equal(expected, actual) else None
        names = sorted({*one, *other})
        return np.array([[each.get(name, 0.0) for name in names] for each in (one, other)])
    if expected.shape != actual.shape or "S" in (expected.dtype.kind, actual.dtype.kind):
        return None
    return np.array([expected.ravel(), actual.ravel()], np.float64)


def _classes(texts: NDArray[Any]) -> dict[bytes, float]:
    """By name, if that is what the texts are."""
    found = [CLASS.fullmatch(text) for text in texts.ravel().tolist()]
    try:
        return {each[2]: float(each[1]) for each in found if each} if all(found) else {}
    except ValueError:
        return {}
