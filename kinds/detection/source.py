"""What a detector is made from: architecture, weights, labels, and which boxes count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from scripts.artefacts.manifest import NOTHING
from scripts.steps.fine_tuned import FineTuned


@dataclass(frozen=True)
class Detector(FineTuned):
    """Its labels are without the background."""

    boxes: Mapping[str, float] = field(kw_only=True)  # which boxes count

    setting: ClassVar[str] = "DETECTION"

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        return {**super().identity(before), "boxes": dict(self.boxes)}
