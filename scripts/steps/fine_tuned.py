"""A network of torchvision's that is no classifier: its architecture, weights and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def load(
        self, published: Any, count: Callable[[dict[str, Any]], int], settle: Callable[[Any], None]
    ) -> tuple[Any, int, dict[str, str]]:
        """The network, how many classes it has, and where its weights are from. `published`: by
        torchvision; `count`: the classes of a file's weights; `settle`: what makes an untrained
        network say something."""
        from scripts.steps import networks

        classes = len(published.meta["categories"])
        if self.is_file:
            path = Path(self.weights)
            state = networks.read_state(path)
            classes = count(state)
            module = networks.fill_weights(self.module(classes), state, self.arch, path)
            return module, classes, networks.origin_of(path)
        module = self.module(classes)
        if self.is_untrained:
            settle(module)
            return module, classes, {"source": "random, seed 0"}
        module.load_state_dict(networks.download_weights(self.arch, published, self.ways_out))
        return module, classes, {"source": f"torchvision {published}", "url": published.url}

    def module(self, classes: int) -> Any:
        """Without weights."""
        import torch

        from scripts.steps.vision import torchvision

        torch.manual_seed(0)
        return torchvision.models.get_model(
            self.arch, weights=None, weights_backbone=None, num_classes=classes
        )

    def names(self, classes: int, published: list[str], besides: str = "") -> list[str]:
        """Of a file's classes."""
        named = lines_of(self.labels)
        if not named and classes == len(published):
            return published
        if named and len(named) != classes:
            raise UserError(
                f"{self.labels} has {count_of(named)}, and {Path(self.weights).name} "
                f"{classes} classes{besides}",
                "give one label per line, in the order of the training",
            )
        return named or [f"class {number}" for number in range(1, classes + 1)]
