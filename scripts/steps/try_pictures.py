"""Tries common ways to prepare pictures for a network that does not say how, on labelled ones.

    python -m scripts.steps.try_pictures --network birds.onnx --pictures '{"resize": 256, …}' \
        --classes 10 --labelled val --items items.json --out tried.json

Items: a list of names in that folder, each with the number of its class.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.artefacts.exporting import start
from scripts.artefacts.progress import step, tell
from scripts.artefacts.shapes import sides
from scripts.base.errors import UserError
from scripts.evaluation.scores import LEAST_RIGHT, Answers, Paired, find_order
from scripts.evaluation.share import Share
from scripts.intake.signature import Signature, has_any_size

# Larger than any network takes; whole photos would be resized dozens of times.
LARGEST = 768
# That a better way is so by chance.
CHANCE = 0.05

# What trainings commonly do.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Of Caffe, and of Keras after it.
LEVELS = (123.68, 116.78, 103.94)
NUMBERS: Mapping[str, tuple[float, tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet's mean": (255, MEAN, STD),
    "levels from 0 to 1": (255, (0, 0, 0), (1, 1, 1)),
    "levels from -1 to 1": (255, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "levels from 0 to 255": (1, (0, 0, 0), (1, 1, 1)),
    "levels less their mean": (1, LEVELS, (1, 1, 1)),
}
SIDES = (32, 48, 64, 96, 128, 160, 192, 224, 240, 256, 288, 299, 320, 384, 448, 512)

How = Mapping[str, Any]


@dataclass(frozen=True)
class Guess:
    name: str
    how: How


Way = Callable[[How], Iterable[Guess]]


@dataclass(frozen=True)
class Tried:
    guess: Guess
    answers: Answers
    in_order: bool  # whether labels may stand in another one

    @cached_property
    def order(self) -> list[int] | None:
        found = find_order(self.answers) if self.in_order else None
        return None if found is None else [int(each) for each in found]

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        if self.order is None:
            return self.answers.right
        right: NDArray[np.bool_] = np.array(self.order)[self.answers.truth] == self.answers.first
        return right

    @property
    def name(self) -> str:
        return self.guess.name + (", in another order" if self.in_order else "")

    @property
    def share(self) -> Share:
        return Share(int(self.right.sum()), len(self.right))


@dataclass(frozen=True)
class Wanted:
    network: Path
    pictures: How  # the usual way
    classes: int
    labelled: Path
    items: Path
    out: Path
    output: str = ""
    data: tuple[Path, ...] = ()  # the files with its weights
    any_size: bool = False  # nobody has said it


def try_all(wanted: Wanted) -> None:
    items = json.loads(wanted.items.read_text())
    tell(f"- trying how {wanted.network.name} wants pictures, on {len(items)}:")
    found = search(wanted, [(wanted.labelled / name, truth) for name, truth in items])
    wanted.out.write_text(json.dumps(found, indent=2) + "\n")


def search(wanted: Wanted, items: Sequence[tuple[Path, int]]) -> dict[str, Any]:
    """One thing after another; a better way has to be better beyond chance."""
    from scripts.intake.forms import read
    from scripts.intake.original import Original

    how: How = wanted.pictures
    form, facts = read(wanted.network, wanted.data, how, wanted.output, wanted.classes)
    asked = Asked(Original(form.runnable, wanted.network.name, facts, how), items, wanted.classes)

    ways: list[Way] = [lambda how: guess_numbers(how, facts)]
    # At another size, neither shows without the other.
    ways += [guess_sides, *ways] if wanted.any_size and has_any_size(form.model) else []
    ways.append(guess_fits)
    usual = asked.about(Guess("as usual", how))
    best = climb(asked, usual, ways)
    if best.share.value < LEAST_RIGHT:
        # Perhaps the labels stand in another order, in which some way is right.
        in_order = climb(asked, replace(usual, in_order=True), ways)
        best = in_order if in_order.order else best
    changed = {key: value for key, value in best.guess.how.items() if how.get(key) != value}
    return {
        "tried": {each.name: each.share.count for each in asked.tried if each is not usual},
        "usual": usual.share.count,
        "best": best.share.count,
        "of": best.share.of,
        "pictures": changed,
        "order": best.order,
    }


def climb(asked: Asked, usual: Tried, ways: Sequence[Way]) -> Tried:
    best = usual
    for way in ways:
        before = "" if best is usual else f"{best.guess.name}, "
        guesses = [Guess(f"{before}{each.name}", each.how) for each in way(best.guess.how)]
        tried = [asked.about(guess, usual.in_order) for guess in guesses]
        found = max(tried, key=lambda each: each.share.count)
        paired = Paired.from_right(best.right, found.right)
        # The best of many is the likelier so by chance.
        best = found if paired.drop < 0 and paired.p < CHANCE / len(tried) else best
    return best


def guess_numbers(how: How, facts: Signature) -> Iterator[Guess]:
    """What pixels become. Of whole numbers, only the order of colours is open."""
    if facts.channels == 1:
        for name, (scale, mean, std) in NUMBERS.items():
            grey = {"scale": scale, "mean": [mean[1]], "std": [std[1]]}
            yield Guess(name, {**how, **grey})
        return
    numbers = {"": None} if facts.takes_levels else NUMBERS
    for channels in ("rgb", "bgr"):
        for name, values in numbers.items():
            given: dict[str, Any] = {"channels": channels}
            if values:
                scale, mean, std = values
                turn = slice(None, None, -1 if channels == "bgr" else 1)
                given |= {"scale": scale, "mean": [*mean[turn]], "std": [*std[turn]]}
            order = channels.upper() if channels == "bgr" or not name else ""
            yield Guess(", ".join(filter(None, (name, order))), {**how, **given})


def guess_fits(how: How) -> Iterator[Guess]:
    """What of the picture is shown."""
    short = min(sides(how["crop"]))
    yield Guess(
        "the middle, an eighth left out", {**how, "fit": "crop", "resize": round(short * 8 / 7)}
    )
    yield Guess("the middle square", {**how, "fit": "crop", "resize": short})
    yield Guess("squashed", {**how, "fit": "squash", "resize": short})
    for pad, name in ((0, "black"), (114, "grey")):
        framed = {**how, "fit": "letterbox", "resize": short, "pad": pad}
        yield Guess(f"whole, in a {name} frame", framed)


def guess_sides(how: How) -> Iterator[Guess]:
    """How large; with as much around it as before."""
    margin = how["resize"] / min(sides(how["crop"]))
    for side in SIDES:
        yield Guess(f"{side} pixels", {**how, "crop": side, "resize": round(side * margin)})


class Asked:
    def __init__(self, original: Any, items: Sequence[tuple[Path, int]], classes: int) -> None:
        from PIL import Image, ImageOps

        from scripts.intake import plain

        self._original, self._classes = original, classes
        self._pictures, truth = list[Any](), list[int]()
        for path, number in items:
            try:
                with Image.open(path) as file:
                    picture = plain.make_rgb(ImageOps.exif_transpose(file))
            except Exception:  # Pillow's, of files that are damaged or too large, are of many kinds
                continue
            picture.thumbnail((LARGEST, LARGEST))
            self._pictures.append(picture)
            truth.append(number)
        self._truth = np.array(truth, np.int64)
        self.tried = list[Tried]()
        self._first = dict[str, Any]()  # the likeliest class of each picture, by how it is prepared

    def about(self, guess: Guess, in_order: bool = False) -> Tried:
        asked = json.dumps(guess.how, sort_keys=True)
        if asked not in self._first:  # the order of labels changes nothing of it
            with step(guess.name):
                self._first[asked] = self._find_first(guess.how)
        first = self._first[asked]
        names = [str(number) for number in range(self._classes)]
        answers = Answers(names, self._truth, first[:, None], np.ones(len(first)))
        self.tried.append(Tried(guess, answers, in_order))
        return self.tried[-1]

    def _find_first(self, how: How) -> NDArray[np.int64]:
        from scripts.intake import plain

        if not self._pictures:
            return np.zeros(0, np.int64)
        original = self._original.prepare_as(how)
        try:
            rows = np.concatenate(
                [original.numbers([plain.crop(each, how)]) for each in self._pictures]
            )
        except UserError:  # it takes no pictures of this size
            return np.full(len(self._pictures), -1)
        if rows.shape[1] == 1:
            rows = rows - (0.5 if rows.min() >= 0 and rows.max() <= 1 else 0)
            rows = np.concatenate([-rows, rows], axis=1)
        return np.where(np.isfinite(rows).all(axis=1), rows.argmax(axis=1), -1)


if __name__ == "__main__":
    start(try_all)
