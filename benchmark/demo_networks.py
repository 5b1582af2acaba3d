"""Trains the small network of ARCH=drawn, which needs no download, and scores it on held-back
pictures.

    .venv/bin/python -m benchmark.demo_networks [--to FILE]

Takes about half a minute on one core. Out: the weights that the project comes with.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from scripts.artefacts.drawn import drawings, network
from scripts.artefacts.exporting import start
from scripts.artefacts.progress import step
from scripts.base.errors import UserError

# The last of which are held back.
PICTURES, HELD_BACK = 3360, 480
BATCH, EPOCHS, FASTEST = 32, 6, 3e-3
LEAST = 0.95
FAST = torch.channels_last  # faster on CPUs
MOVED = 4  # pixels, at most


def train_pictures(out: Path) -> None:
    with step(f"drawing {PICTURES} pictures"):
        pixels, labels = map(torch.from_numpy, drawings.many(PICTURES))
        mean, std = (
            torch.tensor(each).view(1, 3, 1, 1) * 255 for each in (network.MEAN, network.STD)
        )
    module = network.network()
    score = train(module, (pixels.float() - mean) / std, labels, vary_picture, HELD_BACK)
    save(module, score, out)


def vary_picture(pixels: torch.Tensor) -> torch.Tensor:
    """The same drawings, mirrored, shifted and recoloured."""
    if torch.rand(()) < 0.5:
        pixels = pixels.flip(3)
    down, right = torch.randint(-MOVED, MOVED + 1, (2,)).tolist()
    return pixels.roll((down, right), (2, 3))[:, torch.randperm(3)]


def train(
    module: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    vary: Callable[[torch.Tensor], torch.Tensor],
    held_back: int,
) -> float:
    """The share of those held back that it is right on."""
    torch.set_num_threads(1)  # two wait for each other in every small operation
    learnt = len(labels) - held_back
    with step("training on them"):
        module.to(memory_format=FAST)
        fit(module, examples[:learnt], labels[:learnt], vary)
        module.to(memory_format=torch.contiguous_format)  # the layout for files
        return calibrate(module.eval(), examples[learnt:], labels[learnt:])


def fit(
    module: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    vary: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    optimiser = torch.optim.AdamW(module.parameters(), FASTEST, weight_decay=0.05, fused=True)
    steps = EPOCHS * (len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, FASTEST, steps, pct_start=0.2)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(labels)).split(BATCH)[: steps // EPOCHS]:
            scores = module(vary(examples[chosen]).contiguous(memory_format=FAST))
            loss = nn.functional.cross_entropy(scores, labels[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def calibrate(module: nn.Module, examples: torch.Tensor, labels: torch.Tensor) -> float:
    """Scales the last layer, so that the probabilities are as sure as they are right; returns the
    accuracy."""
    with torch.inference_mode():
        scores = module(examples)
        temperatures = torch.linspace(0.5, 4, 71)
        losses = [nn.functional.cross_entropy(scores / each, labels) for each in temperatures]
        best = temperatures[int(torch.stack(losses).argmin())]
    with torch.no_grad():
        for parameter in module[-1].parameters():
            parameter /= best
    return float((scores.argmax(1) == labels).float().mean())


def save(module: nn.Module, score: float, out: Path, about: dict[str, str] | None = None) -> None:
    said = f"{score:.1%}"
    print(f"  right on {said} of the held-back examples")
    if score < LEAST:
        raise UserError(f"at least {LEAST:.0%} is required", "nothing was changed")
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.tmp")
    save_file(module.state_dict(), draft, {"right on held-back examples": said, **(about or {})})
    draft.replace(out)


def main(to: Path = network.WEIGHTS) -> int:
    train_pictures(to)
    return 0


if __name__ == "__main__":
    start(main)
