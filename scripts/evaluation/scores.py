"""How right answers are, of one model or of two to the same items, each figure with where it lies
with 95% certainty. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from scripts.evaluation.share import Share, Z

# In the right order, so many answers must be right.
LEAST_RIGHT = 0.5
# Of a calibration error.
BINS = 15  # as in Guo et al., 2017
RESAMPLES = 1000
OUTSIDE = 0.025  # on either side
# With more, resamples are of this many, and the interval is narrower than theirs.
MOST_RESAMPLED = 20_000
# Of McNemar's test: with more, its probability is that of a normal distribution.
MOST_EXACT = 1000


@dataclass(frozen=True)
class Answers:
    """To labelled items. `likeliest` has a row for each: classes, the likeliest first, -1 for
    none; `confidence` is the probability of the first."""

    classes: Sequence[str]
    truth: NDArray[np.int64]
    likeliest: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @property
    def first(self) -> NDArray[np.int64]:
        first: NDArray[np.int64] = self.likeliest[:, 0]
        return first

    @property
    def right(self) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = self.first == self.truth
        return right

    def __len__(self) -> int:
        return len(self.truth)


def among_first(answers: Answers, most: int) -> Share:
    """How often the truth is among so many likeliest."""
    hit = (answers.likeliest[:, :most] == answers.truth[:, None]).any(axis=1)
    return Share(int(hit.sum()), len(answers))


@dataclass(frozen=True)
class OfClass:
    name: str
    recall: Share  # of the items of this class, those that were called so
    precision: Share  # of the items that were called so, those of this class


def by_class(answers: Answers) -> list[OfClass]:
    """Of classes that are in the data or in answers."""
    count = len(answers.classes)
    there = np.bincount(answers.truth, minlength=count)
    called = np.bincount(answers.first[answers.first >= 0], minlength=count)
    hit = np.bincount(answers.truth[answers.right], minlength=count)
    return [
        OfClass(name, Share(int(right), int(of)), Share(int(right), int(said)))
        for name, right, of, said in zip(answers.classes, hit, there, called, strict=True)
        if of or said
    ]


@dataclass(frozen=True)
class Confused:
    truth: str
    called: str
    count: int
    of: int  # items of the true class
    examples: Sequence[int]  # places of the surest


def list_confused(answers: Answers, most: int = 10, examples: int = 4) -> list[Confused]:
    """The pairs that are confused most often."""
    wrong = np.flatnonzero(~answers.right)
    pairs: dict[tuple[int, int], list[int]] = {}
    for place in wrong[np.argsort(-answers.confidence[wrong], kind="stable")]:
        pairs.setdefault((int(answers.truth[place]), int(answers.first[place])), []).append(place)
    ordered = sorted(pairs.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:most]
    there = np.bincount(answers.truth, minlength=len(answers.classes))
    return [
        Confused(
            answers.classes[truth],
            answers.classes[called],
            len(places),
            int(there[truth]),
            [int(place) for place in places[:examples]],
        )
        for (truth, called), places in ordered
    ]


@dataclass(frozen=True)
class Bin:
    low: float
    high: float
    confidence: float  # the mean
    right: Share


@dataclass(frozen=True)
class Calibration:
    """The expected calibration error, with the interval of items drawn again (bootstrap)."""

    error: float
    low: float
    high: float
    bins: list[Bin]

    def __str__(self) -> str:
        return f"{self.error:.3f} ({self.low:.3f} to {self.high:.3f})"


def measure_calibration(answers: Answers) -> Calibration:
    """Whether a model is right as often as it is sure."""
    sure, right = answers.confidence.clip(0, 1), answers.right
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    error = _error(place, sure - right, len(right))
    random, count = np.random.default_rng(0), min(len(right), MOST_RESAMPLED)
    drawn = []
    for _ in range(RESAMPLES):
        some = random.integers(0, len(right), count)
        drawn.append(_error(place[some], (sure - right)[some], count))
    # Chance alone makes an error of a resample larger than that of what it was drawn from: the
    # interval is reflected at it.
    upper, lower = np.quantile(drawn, (1 - OUTSIDE, OUTSIDE))
    narrower = sqrt(count / len(right))
    low, high = (error - narrower * float(end - error) for end in (upper, lower))
    low, high = min(max(low, 0.0), error), max(min(high, 1.0), error)
    return Calibration(error, low, high, _bins(place, sure, right))


def _error(place: NDArray[np.int64], off: NDArray[np.float64], count: int) -> float:
    return float(np.abs(np.bincount(place, off, BINS)).sum() / count)


def _bins(
    place: NDArray[np.int64], sure: NDArray[np.float64], right: NDArray[np.bool_]
) -> list[Bin]:
    found = []
    for number in np.unique(place):
        inside = place == number
        share = Share(int(right[inside].sum()), int(inside.sum()))
        found.append(Bin(number / BINS, (number + 1) / BINS, float(sure[inside].mean()), share))
    return found


def find_order(answers: Answers) -> NDArray[np.int64] | None:
    """If classes stand in another order than their labels say: for each label, the class of the
    network that it belongs to. It shows in the answers: most items of a class are called the
    same, and wrongly."""
    count = len(answers.classes)
    seen = np.unique(answers.truth)
    if len(seen) < 2:
        return None
    # Pairs of a true class and an answer, the most frequent first; each is taken once.
    pairs, times = np.unique(
        np.stack([answers.truth, answers.first], 1)[answers.first >= 0], axis=0, return_counts=True
    )
    order = np.full(count, -1, np.int64)
    for truth, called in pairs[np.argsort(-times, kind="stable")]:
        if order[truth] < 0 and called not in order:
            order[truth] = called
    moved = [truth for truth in seen if order[truth] not in (truth, -1)]
    before = among_first(answers, 1)
    after = Share(int((order[answers.truth] == answers.first).sum()), len(answers))
    if len(moved) < 2 or after.low <= before.high or after.value < LEAST_RIGHT:
        return None
    # Of classes that no item has, the answers say nothing.
    for number in np.flatnonzero(order < 0):
        if number not in order:
            order[number] = number
    order[order < 0] = [number for number in range(count) if number not in order]
    return order


def reorder(classes: Sequence[str], order: NDArray[np.int64]) -> list[str]:
    """What each class of the network should be called, by what find_order found."""
    return [classes[label] for label in np.argsort(order)]


@dataclass(frozen=True)
class Paired:
    """What only one of two got right."""

    only_first: int
    only_second: int
    of: int

    @classmethod
    def from_right(cls, first: NDArray[np.bool_], second: NDArray[np.bool_]) -> Paired:
        return cls(int((first & ~second).sum()), int((second & ~first).sum()), len(first))

    @property
    def drop(self) -> float:
        """By how much the second is right more seldom."""
        return (self.only_first - self.only_second) / self.of if self.of else 0.0

    @property
    def low(self) -> float:
        return self._ends[0]

    @property
    def high(self) -> float:
        return self._ends[1]

    @property
    def _ends(self) -> tuple[float, float]:
        """With one more of each, as Bonett and Price do: it holds with few items too."""
        of = self.of + 2
        first, second = (self.only_first + 1) / of, (self.only_second + 1) / of
        variance = first + second - (first - second) ** 2
        half = Z * sqrt(variance / of)
        return max(-1.0, first - second - half), min(1.0, first - second + half)

    @property
    def p(self) -> float:
        """McNemar's test: how likely so uneven a split is if both are equally good."""
        few, differing = min(self.only_first, self.only_second), self.only_first + self.only_second
        if differing == 0:
            return 1.0
        if differing > MOST_EXACT:
            off = (abs(self.only_first - self.only_second) - 1) / sqrt(differing)
            return erfc(max(0.0, off) / sqrt(2))
        below = sum(comb(differing, number) for number in range(few + 1))
        return min(1.0, float(2 * below / 2**differing))

    def __str__(self) -> str:
        points = [-100 * each for each in (self.drop, self.high, self.low)]
        return "{:+.1f} points ({:+.1f} to {:+.1f})".format(*(each + 0.0 for each in points))


def list_losses(
    truth: NDArray[np.int64],
    first: NDArray[np.bool_],
    second: NDArray[np.bool_],
    classes: Sequence[str],
    most: int = 5,
) -> list[str]:
    """The classes that the second got right more seldom, the largest loss first."""
    off = np.bincount(truth, first.astype(int) - second.astype(int), len(classes)).astype(int)
    there = np.bincount(truth, minlength=len(classes))
    worst = [int(each) for each in np.argsort(-off, kind="stable") if off[each] > 0][:most]
    kept = np.bincount(truth, second, len(classes)).astype(int)
    return [
        f"{classes[each]} {kept[each] + off[each]} -> {kept[each]} of {there[each]}"
        for each in worst
    ]
