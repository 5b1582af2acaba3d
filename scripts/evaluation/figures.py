"""All figures of an evaluation, with intervals, and their form as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation import scores
from scripts.evaluation.labelled import Item
from scripts.evaluation.scores import Answers, Paired
from scripts.evaluation.share import Share

TOP = 5
RESAMPLES = 100
OUTSIDE = 0.025  # on either side


@dataclass(frozen=True)
class Original:
    """The original's answers to the same items."""

    what: str
    right: Share
    paired: Paired  # it first
    same: int  # answers


@dataclass(frozen=True)
class Figures:
    right: Share
    among_first: Share | None  # where there are more classes
    calibration: scores.Calibration
    classes: Sequence[scores.OfClass]
    confused: Sequence[scores.Confused]
    labels: Sequence[str]  # in the order that the answers have, if that is another one
    original: Original | None
    ms: Mapping[str, float]  # p50, p95, p99
    a_second: float
    refused: Mapping[str, str]  # item -> why


def compute_figures(
    answers: Answers,
    ms: NDArray[np.float64],
    seconds: float,
    refused: Mapping[str, str],
    original: tuple[str, NDArray[np.int64]] | None,
) -> Figures:
    order = scores.find_order(answers)
    p50, p95, p99 = (float(each) for each in np.percentile(ms, (50, 95, 99)))
    several = answers.likeliest.shape[1] > 1 and len(answers.classes) > TOP
    return Figures(
        right=scores.among_first(answers, 1),
        among_first=scores.among_first(answers, TOP) if several else None,
        calibration=scores.measure_calibration(answers),
        classes=scores.by_class(answers),
        confused=scores.list_confused(answers),
        labels=[] if order is None else scores.reorder(answers.classes, order),
        original=_compare(answers, *original) if original else None,
        ms={"p50": p50, "p95": p95, "p99": p99},
        a_second=len(answers) / seconds,
        refused=refused,
    )


def _compare(answers: Answers, what: str, first: NDArray[np.int64]) -> Original:
    right = first == answers.truth
    paired = Paired.from_right(right, answers.right)
    share = Share(int(right.sum()), len(right))
    return Original(what, share, paired, int((first == answers.first).sum()))


def as_dict(figures: Figures) -> dict[str, Any]:
    original, calibration = figures.original, figures.calibration
    return {
        "items": figures.right.of,
        "right": _share(figures.right),
        f"among_first_{TOP}": _share(figures.among_first) if figures.among_first else None,
        "calibration_error": {
            "value": calibration.error,
            "low": calibration.low,
            "high": calibration.high,
        },
        "reliability": [
            {"confidence": each.confidence, "right": _share(each.right)}
            for each in calibration.bins
        ],
        "classes": {
            each.name: {"recall": _share(each.recall), "precision": _share(each.precision)}
            for each in figures.classes
        },
        "confused": [
            {"truth": each.truth, "called": each.called, "count": each.count, "of": each.of}
            for each in figures.confused
        ],
        "labels_in_the_order_of_answers": list(figures.labels) or None,
        "original": {
            "what": original.what,
            "right": _share(original.right),
            "same_answers": original.same,
            "only_original_right": original.paired.only_first,
            "only_served_right": original.paired.only_second,
            "p": original.paired.p,
        }
        if original
        else None,
        "ms": dict(figures.ms),
        "a_second": figures.a_second,
        "refused": dict(figures.refused),
    }


def _share(share: Share) -> dict[str, float | int | None]:
    value = share.value if share.of else None
    return {
        "count": share.count,
        "of": share.of,
        "value": value,
        "low": share.low,
        "high": share.high,
    }


# Of kinds whose answers are no classes: what their folder computes.


@dataclass(frozen=True)
class Interval:
    """A mean over items, and where it lies for items drawn again (bootstrap)."""

    value: float
    low: float
    high: float

    @classmethod
    def of_drawn(cls, count: int, compute: Callable[[NDArray[np.int64]], float]) -> Interval:
        """`compute` takes how often each item was drawn."""
        random, value = np.random.default_rng(0), compute(np.ones(count, np.int64))
        drawn = [
            compute(np.bincount(random.integers(0, count, count), minlength=count))
            for _ in range(RESAMPLES)
        ]
        low, high = np.nanquantile(drawn, (OUTSIDE, 1 - OUTSIDE))
        return cls(value, min(value, float(low)), max(value, float(high)))

    def __str__(self) -> str:
        return f"{self.value:.1%} ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Measured:
    figures: Mapping[str, Interval]  # the one that counts first
    classes: Mapping[str, float]  # each class's part of that one
    items: int
    refused: Mapping[str, str]  # item -> why

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Apart(Protocol):
    """Labelled data of such a kind."""

    @property
    def items(self) -> Sequence[Item]: ...

    def ask(self, client: Any, model: str, item: Item) -> Any:
        """By the bundle's client."""

    def measure(self, answers: Sequence[Any], refused: Mapping[str, str]) -> Measured:
        """`answers`: of each item, in order; None of one that could not be read."""

    def compute_first(self, answers: Sequence[Any]) -> Callable[[NDArray[np.int64]], float]:
        """The figure that counts first, of each item that has an answer so many times."""
