"""A picture as a training prepares it, step by step: what the served preprocessing is compared
with. Shares no code with it, so that a wrong step cannot agree with itself; but for samples of more
than 8 bits, of which no training says what they are."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from bundle_serving.own_steps import prepare
from bundle_serving.pictures import to_8_bits
from scripts.intake.signature import Signature

# Times the short side: as wide as any training's pictures.
WIDEST = 64


def pixels(file: bytes, how: Mapping[str, Any]) -> NDArray[np.uint8]:
    """An image file -> uint8 [height, width, 3]."""
    return crop(ImageOps.exif_transpose(Image.open(io.BytesIO(file))), how)


def make_rgb(picture: Image.Image) -> Image.Image:
    """16 bits keep their scale, and what is transparent is white."""
    if picture.mode[0] in "IF":
        picture = Image.fromarray(to_8_bits(np.asarray(picture)))
    if picture.mode in ("RGBA", "LA", "P", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")


def trim(picture: Image.Image) -> Image.Image:
    """Without the ends of a strip, which are cropped anyway: resized, one of 1x20000 takes 4 GB."""
    left, top = ((side - WIDEST * min(picture.size)) // 2 for side in picture.size)
    if max(left, top) <= 0:
        return picture
    return ImageOps.crop(picture, (max(left, 0), max(top, 0)) * 2)


def crop(picture: Image.Image, how: Mapping[str, Any]) -> NDArray[np.uint8]:
    picture, crop = make_rgb(picture), how["crop"]
    height, width = (crop, crop) if isinstance(crop, int) else crop
    if program := how.get("program"):
        return prepare(program, how.get("packages", ""), picture, (height, width))
    picture = trim(picture) if how["fit"] == "crop" else picture
    filter_ = getattr(Image.Resampling, how["interpolation"].upper())
    sides = np.array(picture.size, float)
    # As much larger than the crop as its short side becomes first; in whole numbers, as they are.
    wanted = np.array([width, height]) * how["resize"] // min(height, width)
    if how["fit"] == "squash":
        now = wanted
    elif how["fit"] == "letterbox":
        now = np.maximum(1, np.round(sides * (wanted / sides).min()))
    else:
        # The long side is rounded down, as torchvision does.
        covering = int((wanted / sides).argmax())
        now = np.floor(sides * wanted[covering] / sides[covering] + 1e-9)
        now[covering] = wanted[covering]
    resized = picture.resize((int(now[0]), int(now[1])), filter_)
    array = np.asarray(resized)
    if how["fit"] == "letterbox":
        around = ((height, height), (width, width), (0, 0))
        framed = np.pad(array, around, constant_values=how["pad"])
        top, left = height - (height - array.shape[0]) // 2, width - (width - array.shape[1]) // 2
        return framed[top : top + height, left : left + width]
    spare = np.array(array.shape[:2]) - (height, width)
    top, left = (spare // 2 if how["middle"] == "first" else np.round(spare / 2)).astype(int)
    return array[top : top + height, left : left + width]


def make_input(
    picture: NDArray[np.uint8], how: Mapping[str, Any], facts: Signature
) -> NDArray[Any]:
    """uint8 [height, width, 3] -> what the network is fed: a batch of one."""
    levels = order_channels(picture, how)
    kind = {"DOUBLE": "FLOAT64", "FLOAT": "FLOAT32"}.get(facts.kind, facts.kind)
    numbers = (levels if facts.takes_levels else normalise(levels, how)).astype(kind.lower())
    batch = numbers[None] if facts.channels_last else numbers.transpose(2, 0, 1)[None]
    return np.ascontiguousarray(batch)


def order_channels(picture: NDArray[np.uint8], how: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Its channels as the network takes them."""
    if how["channels"] == "grey":
        return np.asarray(Image.fromarray(picture).convert("L"))[:, :, None]
    return picture[:, :, ::-1] if how["channels"] == "bgr" else picture


def normalise(levels: NDArray[np.uint8], how: Mapping[str, Any]) -> NDArray[np.float64]:
    mean, std = (np.array(how[name], np.float64) for name in ("mean", "std"))
    numbers: NDArray[np.float64] = (levels / how["scale"] - mean) / std
    return numbers
