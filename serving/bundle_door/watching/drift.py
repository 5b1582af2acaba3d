"""How far what a version answers now lies from what it answered at first: that is its reference, in
a file of the door's that outlives it.

The distance is the population stability index: under 0.1 is called stable, over 0.25 a shift.
"""

import math
import time
from bisect import bisect_left
from collections import Counter as Counted
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bundle_door.watching.measures import Counter, Family, Labels, sample
from bundle_serving.process.server_log import log

NAME = "references.json"
LABELS = "labels.txt"
# A reference is of so many answers.
ANSWERS = 1000
# A time beyond it, in seconds, is nonsense.
LATEST = 1 << 36
# Of the versions, the newest ones.
MOST_KEPT = 100
# So many classes are called by their number, the reference's most frequent ones.
NAMED = 20
OTHER = "other"
STEP = ("model", "version")
# A version that nobody asks any more has no present.
FORGOTTEN_S = 3600
# Of the classes, those whose share has changed most are told.
MOVED = 8


def stability_index(reference: Mapping[Any, int], present: Mapping[Any, int]) -> float:
    """With half an answer more in each bin: an empty one would be infinitely far."""
    bins = reference.keys() | present.keys()
    expected, found = (_shares(counts, bins) for counts in (reference, present))
    return sum((f - e) * math.log(f / e) for e, f in zip(expected, found, strict=True))


def _shares(counts: Mapping[Any, int], bins: Iterable[Any]) -> list[float]:
    smoothed = [counts.get(each, 0) + 0.5 for each in bins]
    return [each / sum(smoothed) for each in smoothed]


class Reference(msgspec.Struct):
    taken: int
    classes: dict[int, int]
    confidence: dict[int, int]  # by the histogram's buckets
    network: str = ""

    @property
    def whole(self) -> bool:
        counted = self.classes, self.confidence
        return 0 < self.taken < LATEST and all(
            sum(each.values()) == ANSWERS and min(each.values()) > 0 for each in counted
        )


class References:
    """By model and version, if it is this very network: a number may be given to another one. The
    repository, if it is a folder here, tells the classes' names."""

    def __init__(self, folder: Path | None = None, repository: Path | None = None) -> None:
        self._file = folder / NAME if folder else None
        self.repository = repository
        self._kept: dict[str, Reference] = {}
        if self._file:
            with suppress(OSError, ValueError, msgspec.MsgspecError):
                self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Reference])

    def find(self, model: str, version: str, network: str) -> Reference | None:
        found = self._kept.get(f"{model}/{version}")
        return found if found and found.network == network and found.whole else None

    def keep(self, model: str, version: str, reference: Reference) -> None:
        self._kept[f"{model}/{version}"] = reference
        newest = sorted(self._kept.items(), key=lambda item: item[1].taken)[-MOST_KEPT:]
        self._kept = dict(newest)
        if not self._file:
            return
        draft = self._file.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.json.encode(self._kept))
            draft.replace(self._file)
        except OSError as fault:
            log("door", f"the reference of {model} {version} ends with this process: {fault}")

    def labels(self, model: str) -> list[str]:
        if self.repository is None:
            return []
        try:
            return (self.repository / model / LABELS).read_text().splitlines()
        except (OSError, ValueError):
            return []


class Version:
    """Its last answers, of which the first ones become the reference if there is none."""

    def __init__(self, network: str, reference: Reference | None) -> None:
        self.network = network
        self.answers: deque[tuple[int, int]] = deque(maxlen=ANSWERS)
        # Each with its probability, also those before the reference.
        self.sure: deque[tuple[int, float]] = deque(maxlen=ANSWERS)
        self.reference: Reference | None = None
        self.named: dict[int, str] = {}
        self.last = 0.0
        if reference:
            self.compare_with(reference)

    def compare_with(self, reference: Reference) -> None:
        self.reference = reference
        most = Counted(reference.classes).most_common(NAMED)
        self.named = {number: str(number) for number, _ in most}
        self.answers.clear()

    def add(self, number: int, bucket: int, probability: float) -> None:
        self.answers.append((number, bucket))
        self.sure.append((number, probability))
        self.last = time.monotonic()

    @property
    def whole(self) -> bool:
        return len(self.answers) == ANSWERS

    @property
    def is_asked(self) -> bool:
        return time.monotonic() < self.last + FORGOTTEN_S

    def as_reference(self) -> Reference:
        classes, confidence = (Counted(column) for column in zip(*self.answers, strict=True))
        return Reference(round(time.time()), classes, confidence, self.network)

    def name(self, number: int) -> str:
        return self.named.get(number, OTHER)

    def distances(self) -> dict[str, float]:
        if self.reference is None or not self.whole:
            return {}
        then, now = self.reference, self.as_reference()
        return {
            "class": stability_index(
                self._name_classes(then.classes), self._name_classes(now.classes)
            ),
            "confidence": stability_index(then.confidence, now.confidence),
        }

    def _name_classes(self, classes: Mapping[int, int]) -> Counted[str]:
        counted: Counted[str] = Counted()
        for number, count in classes.items():
            counted[self.name(number)] += count
        return counted

    def list_moved(self) -> list[tuple[int, float, float]]:
        """Classes with their shares then and now, those that changed most first."""
        if self.reference is None or not self.whole:
            return []
        then, now = self.reference.classes, Counted(number for number, _ in self.answers)
        shares = [
            (number, then.get(number, 0) / ANSWERS, now[number] / ANSWERS)
            for number in then.keys() | now.keys()
        ]
        return sorted(shares, key=lambda each: (-abs(each[2] - each[1]), each[0]))[:MOVED]


class Drift(Family):
    """The distances, reckoned when they are asked for."""

    kind = "gauge"

    def __init__(
        self, classes: Counter, bounds: Sequence[float], references: References | None = None
    ) -> None:
        super().__init__(
            "bundle_answer_drift_index",
            f"Population stability index of the last {ANSWERS} answers against the reference",
            (*STEP, "of"),
        )
        self.classes, self.bounds = classes, bounds
        self.references = references or References()
        self.versions: dict[Labels, Version] = {}
        # Of a version that was unloaded nothing is told.
        self.is_there: Callable[[tuple[str, str]], bool] = lambda _: True

    def observe(
        self, number: int, probability: float, step: tuple[str, str], network: str = ""
    ) -> None:
        version = self.versions.get(step)
        if version is None or version.network != network:
            if version is None and len(self.versions) == MOST_KEPT:
                del self.versions[min(self.versions, key=lambda each: self.versions[each].last)]
            version = self.versions[step] = Version(network, self.references.find(*step, network))
        version.add(number, bisect_left(self.bounds, probability), probability)
        if version.reference:
            self.classes.add(*step, version.name(number))
        elif version.whole:
            self._take(step, version)

    def _take(self, step: Labels, version: Version) -> None:
        reference = version.as_reference()
        self.references.keep(step[0], step[1], reference)
        version.compare_with(reference)
        for number, count in reference.classes.items():
            self.classes.add(*step, version.name(number), amount=count)

    def renew(self) -> None:
        """The present becomes the reference, of each version of which it is whole."""
        for step, version in self.versions.items():
            if version.reference and version.whole:
                for labels in [each for each in self.classes.values if each[:2] == step]:
                    del self.classes.values[labels]
                self._take(step, version)

    def samples(self) -> Iterator[str]:
        for step, version in self._list_told():
            for of, distance in version.distances().items():
                yield sample(self.name, self.labels, (*step, of), distance)

    def as_json(self) -> list[dict[str, Any]]:
        return [self._describe_version(step, version) for step, version in self._list_told()]

    def list_sure(
        self, step: tuple[str, str], network: str | None
    ) -> Collection[tuple[int, float]]:
        """Its last answers, each with its probability, if it is asked now, and is this network."""
        told = (version for each, version in self._list_told() if each == step)
        return next((each.sure for each in told if network in (None, each.network)), ())

    def _list_told(self) -> list[tuple[Labels, Version]]:
        return [
            (step, version)
            for step, version in sorted(self.versions.items())
            if version.is_asked and self.is_there((step[0], step[1]))
        ]

    def _describe_version(self, step: Labels, version: Version) -> dict[str, Any]:
        moved = version.list_moved()
        name = self.namer(step[0]) if moved else str
        return {
            **dict(zip(STEP, step, strict=True)),
            "taken": version.reference.taken if version.reference else None,
            "answers": len(version.answers),
            "wanted": ANSWERS,
            "index": {of: round(far, 4) for of, far in version.distances().items()},
            "moved": [
                {"class": name(number), "then": then, "now": now} for number, then, now in moved
            ],
        }

    def namer(self, model: str) -> Callable[[int], str]:
        """Of its classes."""
        labels = self.references.labels(model)
        return lambda number: labels[number] if number < len(labels) else str(number)
