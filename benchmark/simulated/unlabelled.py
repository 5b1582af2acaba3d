"""How often is a version right, without labels? What the door tells of drawn things that are noisy,
blurred, or of other shares, beside the truth.

    python -m benchmark.simulated.unlabelled [--pictures 8000] [--rounds 500]

Each round takes other pictures: 1,000 labelled ones as for `make eval`, and the door's last 1,000
answers. Prints a table for docs/measuring/eval.md, and ends with 1 if the truth lies beyond the
bounds more often than stated. The last two columns are of what was called each class, which is
judged apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from safetensors.torch import load_file

from bundle_door.watching.accuracy import (
    CERTAINTY,
    LEAST_OF_A_CLASS,
    bound_classes,
    estimate,
)
from scripts.artefacts.drawn import drawings
from scripts.artefacts.drawn.network import MEAN, STD, WEIGHTS, network
from scripts.artefacts.drawn.things import NAMES
from scripts.artefacts.exporting import start
from scripts.evaluation.scores import Answers
from scripts.server.evaluating import describe_confidence

LABELLED, LAST, TOGETHER = 1000, 1000, 256
CLASSES = len(NAMES)

Pixels = NDArray[np.uint8]
Shift = Callable[[Pixels, np.random.Generator], Pixels]


def add_noise(levels: float) -> Shift:
    return lambda pixels, random: (
        (pixels + random.normal(0, levels, pixels.shape)).clip(0, 255).astype(np.uint8)
    )


def change(how: Callable[[Image.Image], Image.Image]) -> Shift:
    def changed(picture: Pixels) -> Pixels:
        return np.asarray(how(Image.fromarray(picture.transpose(1, 2, 0)))).transpose(2, 0, 1)

    return lambda pixels, _: np.stack([changed(each) for each in pixels])


def blur(radius: float) -> Shift:
    return change(lambda picture: picture.filter(ImageFilter.GaussianBlur(radius)))


def fade(contrast: float) -> Shift:
    return change(lambda picture: ImageEnhance.Contrast(picture).enhance(contrast))


def turn(degrees: float) -> Shift:
    return change(lambda picture: picture.rotate(degrees))


SHIFTS: dict[str, Shift] = {
    "as labelled": lambda pixels, _: pixels,
    **{f"noise of {levels} levels": add_noise(levels) for levels in (10, 20, 30)},
    **{f"blur of {radius:g} pixels": blur(radius) for radius in (0.5, 1, 1.5)},
    **{f"contrast of {contrast:.0%}": fade(contrast) for contrast in (0.7, 0.5)},
    **{f"turned by {degrees} degrees": turn(degrees) for degrees in (5, 10)},
    "in grey": change(lambda picture: picture.convert("L").convert("RGB")),
    "with few colours": change(lambda picture: ImageOps.posterize(picture, 3)),
}
# Of the eight things.
SHARES: dict[str, NDArray[np.float64]] = {
    "half of one class": np.where(np.arange(CLASSES) == 4, 0.5, 0.5 / 7),
    "each class 0.6 times the one before": np.float_power(0.6, np.arange(CLASSES)),
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

    def describe(self) -> dict[str, Any]:
        names, likeliest = list(NAMES), self.first[:, None]
        return describe_confidence(Answers(names, self.truth, likeliest, self.sure))

    @property
    def right(self) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = self.first == self.truth
        return right


def compare(labelled: dict[str, Any], last: Answered) -> tuple[float, float, float]:
    """How often it was right, what is estimated, and what it is at most."""
    told = estimate(last.sure.tolist(), labelled["threshold"], labelled["of"])
    return float(last.right.mean()), *told


def compare_classes(labelled: dict[str, Any], last: Answered) -> tuple[list[bool], int]:
    """Of those that are told, whether the truth is within the bounds; and how many could be."""
    sure = [*zip(last.first.tolist(), last.sure.tolist(), strict=True)]
    within = [
        bool(low <= last.right[last.first == number].mean() <= high)
        for number, (_, low, high) in bound_classes(sure, labelled).items()
    ]
    called = np.bincount(last.first, minlength=CLASSES)
    often = [called[int(number)] >= LEAST_OF_A_CLASS for number in labelled["classes"]]
    return within, sum(often)


def main(pictures: int = 8000, rounds: int = 500) -> int:
    random = np.random.default_rng(0)
    pixels, truth = drawings.many(pictures, seed=5)
    half = pictures // 2
    labelled = Answered(*answer(pixels[:half]), truth[:half])
    cases = {}
    for name, shift in SHIFTS.items():
        shifted = Answered(*answer(shift(pixels[half:], random)), truth[half:])
        cases[name] = shifted, np.ones(CLASSES)
    for name, shares in SHARES.items():
        for how in ("as labelled", "noise of 10 levels", "blur of 1 pixels"):
            cases[f"{how}, {name}" if how != "as labelled" else name] = cases[how][0], shares
    print("| pictures | right | estimated | at most, told | truth within | classes told | within |")
    print("|---|---|---|---|---|---|---|")
    holds = True
    for name, (asked, shares) in cases.items():
        weights = shares[asked.truth] / shares[asked.truth].sum()
        told, of_classes, classes = [], list[bool](), 0
        for _ in range(rounds):
            known = labelled.take(random.choice(half, LABELLED, replace=False)).describe()
            last = asked.take(random.choice(half, LAST, p=weights))
            told.append(compare(known, last))
            are_within, could_be = compare_classes(known, last)
            of_classes += are_within
            classes += could_be
        means = " | ".join(f"{each:.1%}" for each in np.mean(told, axis=0))
        of_all = float(np.mean([true <= most for true, _, most in told]))
        of_a_class = float(np.mean(of_classes)) if of_classes else 1.0
        within = f"{of_a_class:.1%}" if of_classes else "none"
        print(f"| {name} | {means} | {of_all:.1%} | {len(of_classes) / classes:.0%} | {within} |")
        holds &= min(of_all, of_a_class) >= CERTAINTY
    return 0 if holds else 1


if __name__ == "__main__":
    start(main)
