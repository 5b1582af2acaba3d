"""Trains a small classifier on drawn examples, on one core, scored on held-out ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from scripts.base.errors import UserError

BATCH, FASTEST = 32, 3e-3
LEAST = 0.95
FAST = torch.channels_last  # faster on CPUs
SCORE = "right on held-out drawings"


def convolved(before: int, after: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU()]


def taught(
    module: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    held_back: int,
    epochs: int,
    otherwise: Callable[[torch.Tensor], torch.Tensor],
) -> float:
    """Returns the share of those held back that it is right on. `otherwise`: a batch, as it might
    have been drawn too."""
    learnt = len(labels) - held_back
    with _one_thread():
        module.to(memory_format=FAST)
        _fit(module, examples[:learnt], labels[:learnt], epochs, otherwise)
        module.to(memory_format=torch.contiguous_format)  # the layout for files
        return _calibrated(module.eval(), examples[learnt:], labels[learnt:])


def save(module: nn.Module, score: float, out: Path) -> None:
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


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two would wait for each other in every small operation, and burn a core while they do: where
    others compute too, five times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _fit(
    module: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    epochs: int,
    otherwise: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(module.parameters(), FASTEST, weight_decay=0.05, fused=True)
    steps = epochs * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, FASTEST, steps, pct_start=0.2)
    for _ in range(epochs):
        for chosen in torch.randperm(len(labels)).split(BATCH)[: steps // epochs]:
            scores = module(otherwise(examples[chosen]).contiguous(memory_format=FAST))
            loss = nn.functional.cross_entropy(scores, labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def _calibrated(module: nn.Module, examples: torch.Tensor, labels: torch.Tensor) -> float:
    """Returns the accuracy, after scaling the last layer so that the probabilities are
    calibrated."""
    with torch.inference_mode():
        scores = module(examples)
        temperatures = torch.linspace(0.5, 4, 71)
        losses = [nn.functional.cross_entropy(scores / each, labels) for each in temperatures]
        best = temperatures[int(torch.stack(losses).argmin())]
    with torch.no_grad():
        for parameter in module[-1].parameters():
            parameter /= best
    return float((scores.argmax(1) == labels).float().mean())
