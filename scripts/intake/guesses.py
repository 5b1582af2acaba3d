"""How pictures may be meant to be prepared, where nothing says so: what trainings commonly do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scripts.intake.signature import Signature

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


@dataclass(frozen=True)
class Guess:
    name: str
    how: Mapping[str, Any]


def guess_numbers(how: Mapping[str, Any], facts: Signature) -> Iterator[Guess]:
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


def guess_fits(how: Mapping[str, Any]) -> Iterator[Guess]:
    """What of the picture is shown."""
    crop = how["crop"]
    short = crop if isinstance(crop, int) else min(crop)
    yield Guess(
        "the middle, an eighth left out", {**how, "fit": "crop", "resize": round(short * 8 / 7)}
    )
    yield Guess("the middle square", {**how, "fit": "crop", "resize": short})
    yield Guess("squashed", {**how, "fit": "squash", "resize": short})
    for pad, name in ((0, "black"), (114, "grey")):
        framed = {**how, "fit": "letterbox", "resize": short, "pad": pad}
        yield Guess(f"whole, in a {name} frame", framed)


def guess_sides(how: Mapping[str, Any]) -> Iterator[Guess]:
    """How large; with as much around it as before."""
    crop = how["crop"]
    margin = how["resize"] / (crop if isinstance(crop, int) else min(crop))
    for side in SIDES:
        yield Guess(f"{side} pixels", {**how, "crop": side, "resize": round(side * margin)})
