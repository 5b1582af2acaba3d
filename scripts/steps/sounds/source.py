"""What tells sounds apart: the weights, their labels, and how it hears. Imports no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving import sounds
from scripts.base.errors import NoWeights
from scripts.steps.manifest import NOTHING, of_file, of_labels, pinned
from scripts.steps.trained_here import TrainedHere

DRAWN = "drawn"
MAKERS = ("torch", "onnx", "onnxscript")


@dataclass(frozen=True)
class Listener:
    weights: str  # "drawn": trained here; or a file
    hearing: Mapping[str, Any]  # the fields of bundle_serving.sounds.Hearing
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # of a file's classes

    @property
    def words(self) -> list[str | Path]:
        """The step's arguments."""
        weights = self.weights if self.weights == DRAWN else Path(self.weights)
        words = ["--weights", weights, *self._heard, "--precision", self.precision]
        return [*words, *(("--labels", self.labels) if self.labels else ())]

    @property
    def trained_here(self) -> TrainedHere:
        return TrainedHere("sounds", tuple(self._heard), (Path(sounds.__file__),))

    @property
    def _heard(self) -> list[str]:
        return ["--hearing", json.dumps(self.hearing)]

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.weights != DRAWN:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(
                    f"there is no weights file at {self.weights}",
                    "give a .pth or .safetensors file (SOUNDS=street.pth), or take the network "
                    "that is trained here (SOUNDS=drawn)",
                )
        return {
            "arch": "listener",
            "weights": weights,
            "hearing": dict(self.hearing),
            "precision": self.precision,
            "labels": of_labels(self.labels, before) if self.labels else None,
            "versions": pinned(*MAKERS),
        }
