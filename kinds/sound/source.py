"""What tells sounds apart: the weights, their labels, and how it hears. Imports no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.artefacts.manifest import NOTHING, of_file, of_labels, read_pins
from scripts.base.errors import NoWeights

DRAWN = "drawn"
MAKERS = ("torch", "onnx", "onnxscript")


def drop_longest(hearing: Mapping[str, Any]) -> dict[str, Any]:
    """What a network is trained for: all but the longest sound."""
    return {name: value for name, value in hearing.items() if name != "longest"}


@dataclass(frozen=True)
class Listener:
    weights: str  # "drawn": what the project comes with; or a file
    hearing: Mapping[str, Any]  # the fields of kinds.sound.serving.sounds.Hearing
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # of a file's classes

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.weights != DRAWN:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(
                    f"there is no weights file at {self.weights}",
                    "give a .pth or .safetensors file (SOUNDS=street.pth), or take the network "
                    "that comes with the project (SOUNDS=drawn)",
                )
        return {
            "arch": "listener",
            "weights": weights,
            "hearing": dict(self.hearing),
            "precision": self.precision,
            "labels": of_labels(self.labels, before) if self.labels else None,
            "versions": read_pins(*MAKERS),
        }
