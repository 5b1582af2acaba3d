"""A network of torchvision's that is no classifier: its architecture, weights and labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from scripts.artefacts.manifest import (
    MAKERS,
    NOTHING,
    count_of,
    lines_of,
    of_file,
    of_labels,
    read_pins,
)
from scripts.base.errors import NoWeights, UserError


@dataclass(frozen=True)
class FineTuned:
    arch: str
    weights: str  # "default" (torchvision's own), "random", or a file
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # of a file's classes

    setting: ClassVar[str]  # names the weights

    @property
    def is_untrained(self) -> bool:
        return self.weights == "random"

    @property
    def is_file(self) -> bool:
        return self.weights not in ("default", "random")

    @property
    def ways_out(self) -> str:
        return (
            f"give a .pth or .safetensors file ({self.setting}=street.pth), or try it untrained "
            f"({self.setting}=random)"
        )

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.is_file:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(f"there is no weights file at {self.weights}", self.ways_out)
        return {
            "arch": self.arch,
            "weights": weights,
            "precision": self.precision,
            "labels": of_labels(self.labels, before) if self.labels else None,
            "versions": read_pins(*MAKERS),
        }

    def names(
        self, classes: int, published: list[str], first: int = 0, besides: str = ""
    ) -> list[str]:
        """Of a file's classes; `first`: the number of the first of them."""
        named = lines_of(self.labels)
        if not named and classes == len(published):
            return published
        if named and len(named) != classes:
            raise UserError(
                f"{self.labels} has {count_of(named)}, and {Path(self.weights).name} "
                f"{classes} classes{besides}",
                "give one label per line, in the order of the training",
            )
        return named or [f"class {first + number}" for number in range(classes)]
