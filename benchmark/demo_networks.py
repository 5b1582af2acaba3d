"""Trains the two small networks that need no download, and scores them on held-back examples.

    .venv/bin/python -m benchmark.demo_networks pictures      of ARCH=drawn
    .venv/bin/python -m benchmark.demo_networks sounds        of SOUNDS=drawn

Takes about half a minute on one core. Out: the weights that the project comes with; or with --to
another file, for a sounds.yaml that hears otherwise: make publish MODEL=sounds SOUNDS=FILE
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from kinds.sound import drawings as made_up
from kinds.sound import network as listener
from kinds.sound.recipe import Sound
from kinds.sound.source import drop_longest
from kinds.sound.things import NAMES
from scripts.artefacts.drawn import drawings, network
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.base.errors import UserError, run_guarded
from scripts.base.paths import ROOT
from scripts.recipes.schema import load

# How many of each, the last of which are held back.
PICTURES, SOUNDS = 3360, 1600
HELD_BACK = {PICTURES: 480, SOUNDS: 320}
BATCH, EPOCHS, FASTEST = 32, 6, 3e-3
LEAST = 0.95
FAST = torch.channels_last  # faster on CPUs
MOVED = 4  # pixels, at most
LOUDER = 2.0  # or quieter, at most, in logarithms of power


def train_pictures(out: Path) -> None:
    with step(f"drawing {PICTURES} pictures"):
        pixels, labels = map(torch.from_numpy, drawings.many(PICTURES))
        mean, std = (
            torch.tensor(each).view(1, 3, 1, 1) * 255 for each in (network.MEAN, network.STD)
        )
    module = network.network()
    score = train(module, (pixels.float() - mean) / std, labels, vary_picture)
    save(module, score, out)


def train_sounds(out: Path) -> None:
    recipe = load(ROOT / "kinds" / "sound" / "sounds.yaml")
    assert isinstance(recipe, Sound)
    with step(f"making up {SOUNDS} sounds"):
        heard, labels = map(torch.from_numpy, made_up.many(recipe.hearing.as_hearing, SOUNDS))
    module = listener.network(len(NAMES))
    score = train(module, heard[:, None], labels, vary_sound)
    save(
        module, score, out, {listener.HEARD: json.dumps(drop_longest(recipe.hearing.model_dump()))}
    )
    labels_file = out.with_suffix(".txt")
    if out != listener.WEIGHTS:
        files.write_bytes(labels_file, "".join(f"drawn {name}\n" for name in NAMES).encode())


def vary_picture(pixels: torch.Tensor) -> torch.Tensor:
    """The same drawings, mirrored, shifted and recoloured."""
    if torch.rand(()) < 0.5:
        pixels = pixels.flip(3)
    down, right = torch.randint(-MOVED, MOVED + 1, (2,)).tolist()
    return pixels.roll((down, right), (2, 3))[:, torch.randperm(3)]


def vary_sound(heard: torch.Tensor) -> torch.Tensor:
    """The same sounds, earlier or later, louder or quieter."""
    later = int(torch.randint(heard.shape[3], ()))
    return heard.roll(later, 3) + torch.empty(len(heard), 1, 1, 1).uniform_(-LOUDER, LOUDER)


def train(
    module: nn.Module,
    examples: torch.Tensor,
    labels: torch.Tensor,
    vary: Callable[[torch.Tensor], torch.Tensor],
) -> float:
    """The share of those held back that it is right on."""
    torch.set_num_threads(1)  # two wait for each other in every small operation
    learnt = len(labels) - HELD_BACK[len(labels)]
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


NETWORKS = {
    "pictures": (train_pictures, network.WEIGHTS),
    "sounds": (train_sounds, listener.WEIGHTS),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--to", type=Path, help="a .safetensors file")
    options = parser.parse_args()
    train_it, usual = NETWORKS[options.network]
    train_it(options.to or usual)
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
