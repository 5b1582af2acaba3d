"""What pipelines that are asked with pictures have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.recipes.pbtxt import LABELS
from scripts.steps.workspace import Workspace

UNTRAINED = " (untrained weights)"


def labels_of(made: Workspace) -> str:
    """One label a line. Untrained weights say so in the label itself: then every client does."""
    mark = UNTRAINED if made.manifest.untrained else ""
    known = (made.onnx / LABELS).read_text().splitlines()
    return "".join(f"{label}{mark}\n" for label in known)


def scores_of_pictures(made: Workspace) -> NDArray[Any]:
    """The last of the reference's rows are those of the pictures."""
    scores: NDArray[Any] = np.load(made.onnx / "reference.npz")["scores"]
    return scores[-len(made.pictures) :]
