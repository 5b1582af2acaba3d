"""A network that says what each pixel shows: its architecture, weights and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scripts.steps.fine_tuned import FineTuned


@dataclass(frozen=True)
class Segmenter(FineTuned):
    """Its labels are by the number of the class, the background's too."""

    setting: ClassVar[str] = "SEGMENTATION"
