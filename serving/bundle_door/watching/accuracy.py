"""How often a version is right now, without labels: as often as it is as sure as it was of a share
of labelled answers that is its accuracy (average thresholded confidence: Garg et al., "Leveraging
unlabeled data to predict out-of-distribution performance", ICLR 2022).

That is too high where pictures are worse than the labelled ones: a network is then surer than it
should be. So a bound above is told, and none below; and none of single classes, which may have
become surer. `python -m benchmark.simulated.unlabelled` tries it out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from math import sqrt
from pathlib import Path
from typing import Any

from bundle_door.watching.measures import Family, sample

# In the repository, written by `make eval`: by model and version.
NAME = "accuracy.json"
DIGITS = 4  # of probabilities, as steps report them
CERTAINTY, Z = 0.99, 2.326348
LEAST = 200  # answers

STEP = ("model", "version")
Step = tuple[str, str]


def find_threshold(sure: Collection[float], right: int) -> float:
    """Of labelled answers: as many are surer as are right."""
    return sorted(sure, reverse=True)[right - 1] if right else 1.0


def estimate(sure: Collection[float], threshold: float, of: int) -> tuple[float, float]:
    """How often it is right, and at most. By chance the labelled answers may have been others,
    twice: for how many are right, and for the threshold; and so may those since."""
    share = sum(each >= threshold for each in sure) / len(sure)
    middle = min(max(share, 1 / len(sure)), 1 - 1 / len(sure))
    spread = sqrt(middle * (1 - middle) * (2 / of + 1 / len(sure)))
    return share, min(1.0, share + Z * spread)


class Accuracy(Family):
    """Of each version whose network was asked about labelled data."""

    kind = "gauge"

    def __init__(
        self, repository: Path | None, sure_of: Callable[[Step], Collection[float]]
    ) -> None:
        super().__init__(
            "bundle_estimated_accuracy_ratio",
            "How often a version is right, by how sure it is: estimated, at most, when labelled",
            (*STEP, "what"),
        )
        self._file = repository / NAME if repository else None
        self._sure_of = sure_of

    def find(self, step: Step) -> dict[str, float]:
        """Empty where too little is known."""
        labelled, sure = self._read().get("/".join(step)), self._sure_of(step)
        if labelled is None or len(sure) < LEAST:
            return {}
        now, most = estimate(sure, labelled["threshold"], labelled["of"])
        return {"estimated": now, "at most": most, "labelled": labelled["right"] / labelled["of"]}

    def samples(self) -> Iterator[str]:
        for key in sorted(self._read()):
            model, _, version = key.rpartition("/")
            for what, value in self.find((model, version)).items():
                yield sample(self.name, self.labels, (model, version, what), value)

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._file.read_bytes()) if self._file else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
