"""How often a version is right now, without labels: as often as it is as sure as it was of a share
of labelled answers that is its accuracy (average thresholded confidence: Garg et al., "Leveraging
unlabeled data to predict out-of-distribution performance", ICLR 2022).

That is too high where pictures are worse than the labelled ones: a network is then surer than it
should be. So a bound above is told, and none below.

Of what it calls a class, both bounds are told while hardly anything is lost in all: as wide as if
all that is lost were called this class, or none of it. Where that says too little, or more is lost,
nothing is told of classes. `python -m benchmark.simulated.unlabelled` tries it out.
"""

import json
from collections.abc import Callable, Collection, Iterator
from math import sqrt
from pathlib import Path
from typing import Any

from bundle_door.watching.measures import Family, sample

# In the repository, written by `make eval`: by model and version.
NAME = "accuracy.json"
MOST_GONE = 100  # that are not served any more
DIGITS = 4  # of probabilities, as steps report them
CERTAINTY, Z, Z_OF_TWO = 0.99, 2.326348, 2.575829
LEAST, LEAST_OF_A_CLASS = 200, 50  # answers
# Where more is lost, or bounds are further apart, nothing is told of classes.
MOST_LOST, MOST_APART = 0.03, 0.5

STEP = ("model", "version")
Step = tuple[str, str]
# The likeliest class, and its probability.
Sure = tuple[int, float]
# About, at least, at most.
Bounds = tuple[float, float, float]


def find_threshold(sure: Collection[float], right: int) -> float:
    """Of labelled answers: as many are surer as are right."""
    return sorted(sure, reverse=True)[right - 1] if right else 1.0


def estimate(sure: Collection[float], threshold: float, of: int) -> tuple[float, float]:
    """How often it is right, and at most."""
    share = sum(each >= threshold for each in sure) / len(sure)
    return share, min(1.0, share + Z * _find_spread(share, of, len(sure)))


def _find_spread(share: float, labelled: int, last: int) -> float:
    middle = min(max(share, 1 / last), 1 - 1 / last)
    return sqrt(middle * (1 - middle) / _count_as(labelled, last))


def _count_as(labelled: int, last: int) -> float:
    """By chance the labelled answers may have been others, twice: for how many are right, and for
    the threshold; and so may those since."""
    return 1 / (2 / labelled + 1 / last)


def bound_classes(last: Collection[Sure], labelled: dict[str, Any]) -> dict[int, Bounds]:
    """Of what it calls each class, how often that is right; without those of which too little is
    known."""
    now, _ = estimate([sure for _, sure in last], labelled["threshold"], labelled["of"])
    lost = max(labelled["right"] / labelled["of"] - now, 0)
    lost += _find_spread(now, labelled["of"], len(last))
    if lost > MOST_LOST:
        return {}
    called: dict[int, list[float]] = {}
    for number, sure in last:
        called.setdefault(number, []).append(sure)
    found = {}
    for number, of_class in labelled.get("classes", {}).items():
        sures = called.get(int(number), [])
        if len(sures) >= LEAST_OF_A_CLASS:
            about, low, high = _estimate_both(sures, of_class["threshold"], of_class["of"])
            moved = lost * len(last) / len(sures)
            bounds = max(0.0, low - moved), min(1.0, high + moved)
            if bounds[1] - bounds[0] <= MOST_APART:
                found[int(number)] = about, *bounds
    return found


def _estimate_both(sure: Collection[float], threshold: float, of: int) -> Bounds:
    """With Wilson's interval: of a class there are few."""
    about, _ = estimate(sure, threshold, of)
    inverse = Z_OF_TWO**2 / _count_as(of, len(sure))
    middle = (about + inverse / 2) / (1 + inverse)
    half = sqrt(about * (1 - about) * inverse + inverse**2 / 4) / (1 + inverse)
    return about, middle - half, middle + half


class Accuracy(Family):
    """Of each version whose network was asked about labelled data."""

    kind = "gauge"

    def __init__(
        self, repository: Path | None, sure_of: Callable[[Step, str | None], Collection[Sure]]
    ) -> None:
        super().__init__(
            "bundle_estimated_accuracy_ratio",
            "How often a version is right, by how sure it is: estimated, at most, when labelled",
            (*STEP, "what"),
        )
        self._file = repository / NAME if repository else None
        self._stamp, self._known = (0, 0, 0), dict[str, Any]()
        self._sure_of = sure_of

    def find(self, step: Step) -> dict[str, float]:
        """Empty where too little is known."""
        labelled, sure = self._compare(step)
        if len(sure) < LEAST:
            return {}
        sures = [each for _, each in sure]
        now, most = estimate(sures, labelled["threshold"], labelled["of"])
        return {"estimated": now, "at most": most, "labelled": labelled["right"] / labelled["of"]}

    def find_classes(self, step: Step) -> dict[int, dict[str, float]]:
        """The weakest first."""
        labelled, sure = self._compare(step)
        if len(sure) < LEAST:
            return {}
        found = sorted(bound_classes(sure, labelled).items(), key=lambda each: each[1][1])
        known = labelled.get("classes", {})
        return {
            number: {"estimated": about, "at least": low, "at most": high,
                     "labelled": known[str(number)]["right"] / known[str(number)]["of"]}
            for number, (about, low, high) in found
        }  # fmt: skip

    def _compare(self, step: Step) -> tuple[dict[str, Any], Collection[Sure]]:
        """What is known of labelled answers, and the last ones if they are of the same network: a
        number may be given to another one. Earlier releases noted none."""
        labelled = self._read().get("/".join(step))
        return labelled or {}, self._sure_of(step, labelled.get("network")) if labelled else ()

    def list_steps(self) -> list[Step]:
        keys = (key.rpartition("/") for key in sorted(self._read()))
        return [(model, version) for model, _, version in keys]

    def samples(self) -> Iterator[str]:
        for step in self.list_steps():
            for what, value in self.find(step).items():
                yield sample(self.name, self.labels, (*step, what), value)

    def _read(self) -> dict[str, Any]:
        """Once for each time that it was written: of a thousand classes it has 50 kB a version."""
        if not self._file:
            return {}
        try:
            now = self._file.stat()
            stamp = now.st_mtime_ns, now.st_ino, now.st_size
            if stamp != self._stamp:
                found = json.loads(self._file.read_bytes())
                self._stamp, self._known = stamp, found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            return {}
        return self._known


class AccuracyOfClasses(Family):
    """Of what each version calls a class."""

    kind = "gauge"

    def __init__(self, accuracy: Accuracy) -> None:
        super().__init__(
            "bundle_estimated_class_accuracy_ratio",
            "How often what is called so is right: estimated, at least, at most, when labelled",
            (*STEP, "class", "what"),
        )
        self._accuracy = accuracy

    def samples(self) -> Iterator[str]:
        for step in self._accuracy.list_steps():
            for number, told in self._accuracy.find_classes(step).items():
                for what, value in told.items():
                    yield sample(self.name, self.labels, (*step, str(number), what), value)
