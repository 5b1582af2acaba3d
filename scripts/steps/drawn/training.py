"""Trains a small network on drawings, scored on held-out ones.

    python -m scripts.steps.drawn.training
    python -m scripts.steps.drawn.drawings | python -m scripts.steps.drawn.training --piped

Takes at most half a minute on one core. Out: the weights, with their score.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from scripts.base.errors import guarded
from scripts.steps import teaching
from scripts.steps.drawn.drawings import COUNT, many
from scripts.steps.drawn.kept import KEPT
from scripts.steps.drawn.things import NAMES
from scripts.steps.progress import step
from scripts.steps.trained_here import Drawn, received

HELD_BACK = 480
EPOCHS = 6
MOVED = 4  # pixels, at most
MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]


class Strongest(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """The maximum of each feature over the picture: a thing may be anywhere."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.amax((2, 3))


def network() -> nn.Module:
    """Normalised pixels -> a score for each thing."""
    torch.manual_seed(0)
    return nn.Sequential(
        *teaching.convolved(3, 16, size=5, stride=2),
        nn.MaxPool2d(2),
        *teaching.convolved(16, 32),
        *teaching.convolved(32, 64),
        nn.MaxPool2d(2),
        *teaching.convolved(64, 128),
        Strongest(),
        nn.Linear(128, len(NAMES)),
    )


def train(out: Path, drawn: Callable[[], Drawn] = many) -> None:
    with step(f"drawing {COUNT} pictures of {', '.join(NAMES)}"):
        pixels, labels = _normalised(*drawn())
    with step("training on them"):
        module = network()
        score = teaching.taught(module, pixels, labels, HELD_BACK, EPOCHS, _otherwise)
    teaching.save(module, score, out)


def at_hand() -> Path:
    """Trained once."""
    if not KEPT.path.exists():
        train(KEPT.path)
    return KEPT.path


def _normalised(
    pixels: NDArray[np.uint8], labels: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) * 255 for each in (MEAN, STD))
    return (torch.from_numpy(pixels).float() - mean) / std, torch.from_numpy(labels)


def _otherwise(pixels: torch.Tensor) -> torch.Tensor:
    """The same drawings, mirrored, shifted and recoloured."""
    if torch.rand(()) < 0.5:
        pixels = pixels.flip(3)
    down, right = torch.randint(-MOVED, MOVED + 1, (2,)).tolist()
    return pixels.roll((down, right), (2, 3))[:, torch.randperm(3)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=KEPT.path)
    parser.add_argument("--piped", action="store_true", help="the drawings come from stdin")
    options = parser.parse_args(argv)
    train(options.out, partial(received, sys.stdin.buffer) if options.piped else many)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
