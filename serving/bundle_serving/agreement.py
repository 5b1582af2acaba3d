"""Whether two runs of a network agree. Pure functions on their scores."""

import pkgutil
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import bundle_serving
from bundle_serving.infer import Answer
from bundle_serving.scores import READINGS

TABLE = "table"  # of a model that answers a row of numbers with numbers of any size

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
            f"top-1 equal on {self.top1_equal} of {self.pictures}, "
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


@cache
def _find_kinds() -> tuple[Any, ...]:
    """What kinds of pipelines compare in a way of their own: kinds/*/serving/agreement_of_*.py.
    SCORES: the name of a network's scores -> how they are compared; ANSWERS: the tensors of those
    answers that compare_answers() compares."""
    names = (module.name for module in pkgutil.iter_modules(bundle_serving.__path__))
    wanted = [name for name in names if name.startswith("agreement_of_")]
    return tuple(import_module(f"{bundle_serving.__name__}.{name}") for name in wanted)


def compare(
    reference: NDArray[Any], scores: NDArray[Any], answers: str = "single-label"
) -> Agreement:
    """Compares scores [pictures, classes] with the reference's."""
    if not np.isfinite(scores).all():
        return Agreement(len(reference), 0, float("inf"))
    if answers == TABLE:
        return of_rows(reference, scores)
    for kind in _find_kinds() if answers not in READINGS else ():
        if compare_scores := kind.SCORES.get(answers):
            return cast(Agreement, compare_scores(reference, scores))
    return compare_known(reference, READINGS[answers](scores), answers)


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


def of_answers(reference: Sequence[Answer], answers: Sequence[Answer]) -> Agreement:
    """Compares whole answers, whatever pipeline gave them, with the same one's elsewhere. A
    difference is between numbers of answers that say the same, and a share of those above 1."""
    for kind in _find_kinds():
        if reference and reference[0].keys() >= kind.ANSWERS:
            return cast(Agreement, kind.compare_answers(reference, answers))
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
