"""How far what a version answers now lies from what it answered at first.

Its reference is its first answers since the door started. The distance is the population stability
index: under 0.1 is called stable, over 0.25 a shift.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter as Counted
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from bundle_door.measures import Counter, Family, Labels, sample

# Answers of the reference, and of the present that is compared with it.
ANSWERS = 1000
# So many classes are called by their number, the reference's most frequent ones.
NAMED = 20
OTHER = "other"
STEP = ("model", "version")


def stability_index(reference: Mapping[str, int], present: Mapping[str, int]) -> float:
    """With half an answer more in each bin: an empty one would be infinitely far."""
    bins = reference.keys() | present.keys()
    expected, found = (_shares(counts, bins) for counts in (reference, present))
    return sum((f - e) * math.log(f / e) for e, f in zip(expected, found, strict=True))


def _shares(counts: Mapping[str, int], bins: Iterable[str]) -> list[float]:
    smoothed = [counts.get(each, 0) + 0.5 for each in bins]
    return [each / sum(smoothed) for each in smoothed]


class Version:
    def __init__(self) -> None:
        self.named: dict[int, str] = {}
        self.reference: list[tuple[int, float]] = []
        self.present: deque[tuple[int, float]] = deque(maxlen=ANSWERS)

    def add(self, number: int, probability: float) -> Iterator[str]:
        """The classes to count: none until the reference is whole, and then all of it."""
        if len(self.reference) == ANSWERS:
            self.present.append((number, probability))
            yield self.named.get(number, OTHER)
            return
        self.reference.append((number, probability))
        if len(self.reference) == ANSWERS:
            most = Counted(number for number, _ in self.reference).most_common(NAMED)
            self.named = {number: str(number) for number, _ in most}
            yield from (self.named.get(number, OTHER) for number, _ in self.reference)

    def distances(self, bounds: Sequence[float]) -> dict[str, float]:
        if len(self.present) < ANSWERS:
            return {}
        both = (self.reference, self.present)
        classes = [Counted(self.named.get(number, OTHER) for number, _ in some) for some in both]
        sure = [Counted(str(bisect_left(bounds, share)) for _, share in some) for some in both]
        return {"class": stability_index(*classes), "confidence": stability_index(*sure)}


class Drift(Family):
    """The distances, reckoned when they are asked for."""

    kind = "gauge"

    def __init__(self, classes: Counter, bounds: Sequence[float]) -> None:
        super().__init__(
            "bundle_answer_drift_index",
            f"Population stability index of the last {ANSWERS} answers against the first",
            (*STEP, "of"),
        )
        self.classes, self.bounds = classes, bounds
        self.versions: dict[Labels, Version] = {}

    def observe(self, number: int, probability: float, *step: str) -> None:
        for name in self.versions.setdefault(step, Version()).add(number, probability):
            self.classes.add(*step, name)

    def samples(self) -> Iterator[str]:
        for step, version in sorted(self.versions.items()):
            for of, distance in version.distances(self.bounds).items():
                yield sample(self.name, self.labels, (*step, of), distance)
