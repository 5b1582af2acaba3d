"""How often is a version right, without labels? What the door tells of drawn things that are noisy,
blurred, or of other shares, beside the truth.

    python -m benchmark.simulated.unlabelled [--pictures 8000] [--rounds 500]

Each round takes other pictures: 1,000 labelled ones as for `make eval`, and the door's last 1,000
answers. Prints a table for docs/eval.md, and ends with 1 if the truth is above the bound more often
than stated. The last column, of what was called a class, is why no such bound is told of classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from safetensors.torch import load_file

from bundle_door.watching.accuracy import CERTAINTY, estimate, find_threshold
from scripts.artefacts.drawn import drawings
from scripts.artefacts.drawn.network import MEAN, STD, WEIGHTS, network
from scripts.artefacts.drawn.things import NAMES

LABELLED, LAST, TOGETHER = 1000, 1000, 256
CLASSES, LEAST_OF_A_CLASS = len(NAMES), 50

Pixels = NDArray[np.uint8]
Shift = Callable[[Pixels, np.random.Generator], Pixels]


def add_noise(levels: float) -> Shift:
    return lambda pixels, random: (
        (pixels + random.normal(0, levels, pixels.shape)).clip(0, 255).astype(np.uint8)
    )


def blur(radius: float) -> Shift:
    def blurred(picture: Pixels) -> Pixels:
        whole = Image.fromarray(picture.transpose(1, 2, 0))
        return np.asarray(whole.filter(ImageFilter.GaussianBlur(radius))).transpose(2, 0, 1)

    return lambda pixels, _: np.stack([blurred(each) for each in pixels])


SHIFTS: dict[str, Shift] = {
    "as labelled": lambda pixels, _: pixels,
    **{f"noise of {levels} levels": add_noise(levels) for levels in (10, 20, 30)},
    **{f"blur of {radius:g} pixels": blur(radius) for radius in (0.5, 1, 1.5)},
}
# Of the eight things.
SHARES: dict[str, NDArray[np.float64]] = {
    "half of one class": np.where(np.arange(CLASSES) == 4, 0.5, 0.5 / 7),
    "each class 0.6 times the one before": 0.6 ** np.arange(CLASSES),
    "two classes alone": np.where(np.isin(np.arange(CLASSES), (0, 4)), 0.5, 0.0),
}


def answer(pixels: Pixels) -> tuple[NDArray[Any], NDArray[Any]]:
    """The likeliest class of each, and its probability."""
    asked = network()
    asked.load_state_dict(load_file(WEIGHTS))
    asked.eval()
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    found = []
    with torch.no_grad():
        for some in torch.from_numpy(pixels).split(TOGETHER):
            scores = asked((some.float() / 255 - mean) / std)
            found.append(torch.softmax(scores, 1).max(1))
    sure, first = zip(*found, strict=True)
    return torch.cat(first).numpy(), torch.cat(sure).numpy()


@dataclass(frozen=True)
class Answered:
    first: NDArray[Any]
    sure: NDArray[Any]
    truth: NDArray[Any]

    def take(self, some: NDArray[Any]) -> Answered:
        return Answered(self.first[some], self.sure[some], self.truth[some])

    def call(self, number: int) -> Answered:
        """Those that it called so."""
        return self.take(np.flatnonzero(self.first == number))

    @property
    def right(self) -> int:
        return int((self.first == self.truth).sum())


def compare(labelled: Answered, last: Answered) -> tuple[float, float, float]:
    """How often it was right, what is estimated, and what it is at most."""
    threshold = find_threshold(labelled.sure.tolist(), labelled.right)
    told = estimate(last.sure.tolist(), threshold, len(labelled.truth))
    return last.right / len(last.truth), *told


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=500)
    options = parser.parse_args(argv)
    random = np.random.default_rng(0)
    pixels, truth = drawings.many(options.pictures, seed=5)
    half = options.pictures // 2
    labelled = Answered(*answer(pixels[:half]), truth[:half])
    cases = {}
    for name, shift in SHIFTS.items():
        shifted = Answered(*answer(shift(pixels[half:], random)), truth[half:])
        cases[name] = shifted, np.ones(CLASSES)
    for name, shares in SHARES.items():
        cases[name] = cases["as labelled"][0], shares
    print("| pictures | right | estimated | at most, told | truth within | of classes |")
    print("|---|---|---|---|---|---|")
    holds = True
    for name, (asked, shares) in cases.items():
        weights = shares[asked.truth] / shares[asked.truth].sum()
        told, of_classes = [], []
        for _ in range(options.rounds):
            known = labelled.take(random.choice(half, LABELLED, replace=False))
            last = asked.take(random.choice(half, LAST, p=weights))
            told.append(compare(known, last))
            for number in range(CLASSES):
                called, before = last.call(number), known.call(number)
                if min(len(called.truth), len(before.truth)) >= LEAST_OF_A_CLASS:
                    of_classes.append(compare(before, called))
        means = " | ".join(f"{each:.1%}" for each in np.mean(told, axis=0))
        within, of_a_class = (
            float(np.mean([true <= most for true, _, most in each])) for each in (told, of_classes)
        )
        print(f"| {name} | {means} | {within:.1%} | {of_a_class:.1%} |")
        holds &= within >= CERTAINTY
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
