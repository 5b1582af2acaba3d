"""Trains the small network of SOUNDS=drawn, which needs no download, and scores it on held-back
sounds.

    .venv/bin/python -m kinds.sound.training [--to FILE]

Takes about half a minute on one core. Out: the weights that the project comes with; or with --to
another file, for a sounds.yaml that hears otherwise: make publish MODEL=sounds SOUNDS=FILE
"""

import json
from pathlib import Path

import torch

from benchmark.demo_networks import save, train
from kinds.sound import drawings as made_up
from kinds.sound import network as listener
from kinds.sound.drawings import NAMES
from kinds.sound.recipe import Sound
from scripts.artefacts.exporting import start
from scripts.artefacts.progress import step
from scripts.base import files
from scripts.recipes.schema import load

# The last of which are held back.
SOUNDS, HELD_BACK = 1600, 320
LOUDER = 2.0  # or quieter, at most, in logarithms of power


def main(to: Path = listener.WEIGHTS) -> None:
    recipe = load(Path(__file__).with_name("sounds.yaml"))
    assert isinstance(recipe, Sound)
    with step(f"making up {SOUNDS} sounds"):
        heard, labels = map(torch.from_numpy, made_up.many(recipe.hearing.as_hearing, SOUNDS))
    module = listener.network(len(NAMES))
    score = train(module, heard[:, None], labels, vary_sound, HELD_BACK)
    heard_so = listener.drop_longest(recipe.hearing.model_dump())
    save(module, score, to, {listener.HEARD: json.dumps(heard_so)})
    if to != listener.WEIGHTS:
        files.write(to.with_suffix(".txt"), "".join(f"drawn {name}\n" for name in NAMES))


def vary_sound(heard: torch.Tensor) -> torch.Tensor:
    """The same sounds, earlier or later, louder or quieter."""
    later = int(torch.randint(heard.shape[3], ()))
    return heard.roll(later, 3) + torch.empty(len(heard), 1, 1, 1).uniform_(-LOUDER, LOUDER)


if __name__ == "__main__":
    start(main)
