"""Pixels of any size -> the network's square input, and its scores -> the likeliest classes.
Pure functions: no Triton here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bundle_serving import work
from bundle_serving.scores import softmax

ROWS = 256


class ArrayError(ValueError):
    """The caller's array is not a picture; the message says why and what would work."""


@dataclass(frozen=True)
class Squares:
    """Resizing to a square, whatever the shape, as in the training of Places365's networks."""

    side: int
    mean: Sequence[float]
    std: Sequence[float]

    @classmethod
    def load(cls, path: Path) -> Squares:
        return cls(**json.loads(path.read_text()))


def to_squares(pictures: NDArray[np.float32], how: Squares) -> NDArray[np.float32]:
    """All of a request."""
    count, height, width, _ = pictures.shape
    if count * height * width > work.MEGAPIXELS * 1e6:
        raise ArrayError(
            f"the request has {count} pictures of {width}x{height} pixels, more than the limit of "
            f"{work.MEGAPIXELS} megapixels; send fewer, or smaller ones"
        )
    return np.stack([to_square(each, how) for each in pictures])


def to_square(pixels: NDArray[np.float32], how: Squares) -> NDArray[np.float32]:
    """[height, width, 3] of 0 to 255 -> normalised [3, side, side]."""
    height, width, channels = pixels.shape
    if channels != 3 or not height or not width:
        raise ArrayError(
            f"an array of {height}x{width}x{channels} is not a picture; "
            "send height x width x 3, RGB, from 0 to 255"
        )
    resized = Image.fromarray(_levels(pixels)).resize(
        (how.side, how.side), Image.Resampling.BILINEAR
    )
    scaled = np.asarray(resized, np.float32) / 255
    normalised = (scaled - np.asarray(how.mean, np.float32)) / np.asarray(how.std, np.float32)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1))


def _levels(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A few rows at a time: the largest picture takes 600 MB and must not be held three times."""
    levels = np.empty(pixels.shape, np.uint8)
    for top in range(0, len(pixels), ROWS):
        some = pixels[top : top + ROWS]
        if not np.isfinite(some).all():
            raise ArrayError("the picture contains NaN or infinity; send values from 0 to 255")
        levels[top : top + ROWS] = some.clip(0, 255).round()
    return levels


def to_answers(scores: NDArray[np.float32], names: Sequence[str], most: int) -> NDArray[np.object_]:
    """Scores [pictures, classes] -> [pictures, most] of probability:number:name, likeliest first;
    written as Triton's classification extension does."""
    probabilities = softmax(scores)
    best = np.argsort(-probabilities, axis=1, kind="stable")[:, :most]
    return np.array(
        [
            [f"{row[n]:.6f}:{n}:{names[n]}".encode() for n in numbers]
            for row, numbers in zip(probabilities, best, strict=True)
        ],
        np.object_,
    )
