"""Which class each pixel of a picture belongs to -> how much of the picture each class is. Pure
functions: no Triton here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Segmentation:
    names: Sequence[str]  # by the number of the class

    @classmethod
    def load(cls, folder: Path) -> Segmentation:
        return cls((folder / "labels.txt").read_text().splitlines())

    def answer(self, masks: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """For each picture the names of all classes, and the share of its pixels that each has."""
        names = np.array([name.encode() for name in self.names], np.object_)
        counts = [np.bincount(mask.ravel(), minlength=len(names)) / mask.size for mask in masks]
        return {"LABELS": np.tile(names, (len(masks), 1)), "SHARES": np.array(counts, np.float32)}
