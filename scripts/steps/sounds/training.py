"""Trains a small network on sounds that are drawn up, scored on held-out ones.

    python -m scripts.steps.sounds.drawings --hearing '{"rate": 16000, …}' |
        python -m scripts.steps.sounds.training --piped --hearing '{"rate": 16000, …}'

Takes less than half a minute on one core. Out: the weights, with their score.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from bundle_serving.sounds import Hearing
from scripts.base.errors import guarded
from scripts.steps import teaching
from scripts.steps.progress import step
from scripts.steps.sounds.drawings import COUNT, many
from scripts.steps.sounds.network import network
from scripts.steps.sounds.source import DRAWN, Listener
from scripts.steps.sounds.things import NAMES
from scripts.steps.trained_here import Drawn, received

HELD_BACK = 320
EPOCHS = 6
LOUDER = 2.0  # or quieter, at most, in logarithms of power


def train(out: Path, drawn: Callable[[], Drawn]) -> None:
    with step(f"drawing {COUNT} sounds of {', '.join(NAMES)}"):
        heard, labels = map(torch.from_numpy, drawn())
    with step("training on them"):
        module = network(len(NAMES))
        score = teaching.taught(module, heard[:, None], labels, HELD_BACK, EPOCHS, _otherwise)
    teaching.save(module, score, out)


def _otherwise(heard: torch.Tensor) -> torch.Tensor:
    """The same sounds, earlier or later, louder or quieter."""
    later = int(torch.randint(heard.shape[3], ()))
    return heard.roll(later, 3) + torch.empty(len(heard), 1, 1, 1).uniform_(-LOUDER, LOUDER)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hearing", type=json.loads, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--piped", action="store_true", help="the drawings come from stdin")
    options = parser.parse_args(argv)
    out = options.out or Listener(DRAWN, options.hearing).trained_here.path
    drawn = partial(many, Hearing(**options.hearing))
    train(out, partial(received, sys.stdin.buffer) if options.piped else drawn)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
