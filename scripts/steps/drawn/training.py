"""Trains a small network on drawings, scored on held-out ones.

    python -m scripts.steps.drawn.training
    python -m scripts.steps.drawn.drawings | python -m scripts.steps.drawn.training --piped

Takes at most half a minute on one core. Out: the weights, with their score.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from scripts.base.errors import UserError, guarded
from scripts.steps.drawn import kept
from scripts.steps.drawn.drawings import COUNT, Drawn, many, received
from scripts.steps.drawn.things import NAMES
from scripts.steps.progress import step

HELD_BACK = 480
LEARNT = COUNT - HELD_BACK
EPOCHS, BATCH, FASTEST = 6, 32, 3e-3
MOVED = 4  # pixels, at most
LEAST = 0.95
FAST = torch.channels_last  # faster on CPUs
MEAN, STD = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]
SCORE = "right on held-out drawings"


class Strongest(nn.Module):  # type: ignore[misc]  # torch comes without types here
    """The maximum of each feature over the picture: a thing may be anywhere."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features.amax((2, 3))


def network() -> nn.Module:
    """Normalised pixels -> a score for each thing."""
    torch.manual_seed(0)
    return nn.Sequential(
        *_convolved(3, 16, size=5, stride=2),
        nn.MaxPool2d(2),
        *_convolved(16, 32),
        *_convolved(32, 64),
        nn.MaxPool2d(2),
        *_convolved(64, 128),
        Strongest(),
        nn.Linear(128, len(NAMES)),
    )


def _convolved(before: int, after: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU()]


def train(out: Path, drawn: Callable[[], Drawn] = many) -> None:
    with step(f"drawing {COUNT} pictures of {', '.join(NAMES)}"):
        pixels, labels = _normalised(*drawn())
    with step("training on them"), _one_thread():
        module = network()
        _fit(module.to(memory_format=FAST), pixels[:LEARNT], labels[:LEARNT])
        module.to(memory_format=torch.contiguous_format)  # the layout for files
        score = _calibrated(module.eval(), pixels[LEARNT:], labels[LEARNT:])
    print(f"  {score:.1%} {SCORE}")
    if score < LEAST:
        raise UserError(
            f"the network is right on {score:.1%} of the drawings, but {LEAST:.0%} is required",
            "nothing was changed",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    save_file(module.state_dict(), draft, {SCORE: f"{score:.1%}"})
    draft.replace(out)


def at_hand() -> Path:
    """Trained once."""
    if not kept.path().exists():
        train(kept.path())
    return kept.path()


def _normalised(
    pixels: NDArray[np.uint8], labels: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) * 255 for each in (MEAN, STD))
    return (torch.from_numpy(pixels).float() - mean) / std, torch.from_numpy(labels)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two would wait for each other in every small operation, and burn a core while they do: where
    others compute too, five times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _fit(module: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> None:
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(module.parameters(), FASTEST, weight_decay=0.05, fused=True)
    steps = EPOCHS * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, FASTEST, steps, pct_start=0.2)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels)).split(BATCH)[: steps // EPOCHS]:
            scores = module(_otherwise(pixels[chosen]))
            loss = nn.functional.cross_entropy(scores, labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def _otherwise(pixels: torch.Tensor) -> torch.Tensor:
    """The same drawings, mirrored, shifted and recoloured."""
    if torch.rand(()) < 0.5:
        pixels = pixels.flip(3)
    down, right = torch.randint(-MOVED, MOVED + 1, (2,)).tolist()
    moved = pixels.roll((down, right), (2, 3))[:, torch.randperm(3)]
    return moved.contiguous(memory_format=FAST)


def _calibrated(module: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> float:
    """Returns the accuracy, after scaling the last layer so that the probabilities are
    calibrated."""
    with torch.inference_mode():
        scores = module(pixels)
        temperatures = torch.linspace(0.5, 4, 71)
        losses = [nn.functional.cross_entropy(scores / each, labels) for each in temperatures]
        best = temperatures[int(torch.stack(losses).argmin())]
    with torch.no_grad():
        for parameter in module[-1].parameters():
            parameter /= best
    return float((scores.argmax(1) == labels).float().mean())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=kept.path())
    parser.add_argument("--piped", action="store_true", help="the drawings come from stdin")
    options = parser.parse_args(argv)
    train(options.out, partial(received, sys.stdin.buffer) if options.piped else many)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
