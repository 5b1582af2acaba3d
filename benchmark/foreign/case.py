"""A network of somebody's, what they would say to `make add-model`, and what is right."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]
Boxes = Mapping[str, Array]  # a detector's answer for one picture
BILINEAR = Image.Resampling.BILINEAR
# The bytes of an image file -> the probability of each label, or its boxes.
Truth = Callable[[bytes], Any]


@dataclass(frozen=True)
class Case:
    name: str
    origin: str  # whose tool it comes from
    # Writes its files into a folder; returns what is right.
    make: Callable[[Path], Truth]
    options: Mapping[str, str] = field(default_factory=dict)  # {folder} is the folder
    refused: str = ""  # a part of the reason, if it cannot be served
    finds: bool = False  # boxes
    bound: float = 0.01  # how far from what is right

    def make_settings(self, folder: Path) -> dict[str, str]:
        network = {"ONNX": "{folder}/model.onnx"} if "FROM" not in self.options else {}
        return {
            name: text.replace("{folder}", str(folder))
            for name, text in (network | dict(self.options)).items()
        }


def picture(seed: int, size: tuple[int, int] = (90, 60)) -> bytes:
    """An image file of patches of colour, and grain."""
    random = np.random.default_rng(seed)
    patches = Image.fromarray(random.integers(0, 256, (4, 4, 3), np.uint8))
    whole = np.asarray(patches.resize(size, Image.Resampling.NEAREST), np.float32)
    grain = random.normal(0, 40, (*whole.shape[:2], 1))
    file = io.BytesIO()
    Image.fromarray(np.clip(whole + grain, 0, 255).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def pictures(count: int) -> list[bytes]:
    """Wide ones and high ones, of several sizes."""
    random = np.random.default_rng(1)
    return [
        picture(seed, (int(random.integers(40, 400)), int(random.integers(40, 400))))
        for seed in range(count)
    ]


def open_picture(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file)).convert("RGB")


def middle(
    image: Image.Image, resize: int, height: int, width: int, filter_: int = BILINEAR
) -> Image.Image:
    """The short side resized, and the middle, as torchvision does."""
    short = min(image.size)
    size = resize * image.width // short, resize * image.height // short
    image = image.resize(size, filter_)
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def farthest(expected: Boxes, found: Boxes, threshold: float) -> float:
    """Between the scores of boxes within a pixel; of one that only one of both has, how far it is
    above the threshold."""
    pairs = [[*each_box(boxes)] for boxes in (expected, found)]
    furthest = 0.0
    for known, others in (pairs, pairs[::-1]):
        for box, label, score in known:
            near = [
                abs(score - another)
                for side, name, another in others
                if name == label and np.abs(box - side).max() <= 1
            ]
            furthest = max(furthest, min(near, default=score - threshold))
    return furthest


def each_box(answer: Boxes) -> Iterator[tuple[Array, bytes, float]]:
    """Without those that a shorter list is padded with."""
    boxes, labels, scores = (answer[name][0] for name in ("BOXES", "LABELS", "SCORES"))
    return (each for each in zip(boxes, labels, scores, strict=True) if each[2])


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(scores: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-scores)))


def same(numbers: Array) -> Array:
    return numbers


def two(true: Array) -> Array:
    """Of one class: that it is not, and that it is."""
    return np.concatenate([1 - true, true], axis=-1)
