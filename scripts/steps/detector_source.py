"""What a detector is made from: architecture, weights, labels, and which boxes count."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.base.errors import NoWeights
from scripts.steps.manifest import MAKERS, NOTHING, of_file, of_labels, pinned

WAYS_OUT = (
    "give a .pth or .safetensors file (DETECTION=street.pth), or try it untrained "
    "(DETECTION=random)"
)


@dataclass(frozen=True)
class Detector:
    arch: str
    weights: str  # "default" (torchvision's own), "random", or a file
    boxes: Mapping[str, float]  # which boxes count
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # of a file's classes, without the background

    @property
    def untrained(self) -> bool:
        return self.weights == "random"

    @property
    def is_file(self) -> bool:
        return self.weights not in ("default", "random")

    @property
    def words(self) -> list[str | Path]:
        """The step's arguments."""
        weights = Path(self.weights) if self.is_file else self.weights
        words = ["--arch", self.arch, "--weights", weights, "--boxes", json.dumps(self.boxes)]
        words += ["--precision", self.precision]
        return [*words, *(("--labels", self.labels) if self.labels else ())]

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.is_file:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(f"there is no weights file at {self.weights}", WAYS_OUT)
        return {
            "arch": self.arch,
            "weights": weights,
            "boxes": dict(self.boxes),
            "precision": self.precision,
            "labels": of_labels(self.labels, before) if self.labels else None,
            "versions": pinned(*MAKERS),
        }
