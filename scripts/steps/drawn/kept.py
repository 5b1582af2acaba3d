"""Where the trained network is kept. Imports no PyTorch."""

from __future__ import annotations

from scripts.steps.trained_here import TrainedHere

KEPT = TrainedHere("drawn")
