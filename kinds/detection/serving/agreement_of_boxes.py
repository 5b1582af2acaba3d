"""Whether two runs of a detector agree. Pure functions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.agreement import Agreement, compare
from bundle_serving.infer import Answer

from .detection import BOX, EACH, INDEPENDENT, UNITS, foreground, overlaps

DETECTION = "detection"  # of a network that answers with a row for each of its anchors
INDEPENDENT_DETECTION = "detection of independent labels"
ANSWERS = {"BOXES", "LABELS", "SCORES"}

# Boxes of the same thing share this much of their area, and so many of a picture's are found again.
SAME, MOST = 0.8, 0.9


def compare_answers(reference: Sequence[Answer], answers: Sequence[Answer]) -> Agreement:
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


SCORES = {
    DETECTION: partial(_compare_rows, labels=EACH),
    INDEPENDENT_DETECTION: partial(_compare_rows, labels=INDEPENDENT),
}
