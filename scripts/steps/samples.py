"""The pictures on which every step is compared with the one before it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bundle_serving.pictures import PictureError, Transform, to_pixels
from scripts.base.errors import UserError
from scripts.steps.picture import mug

RANDOM_PICTURES = 4
# More tell nothing new about the arithmetic, and cost seconds.
MOST_PICTURES = 32


def noise(how: Transform) -> NDArray[np.uint8]:
    """uint8 [n, 3, crop, crop]: white noise, and noise with the spectrum of a photograph."""
    random = np.random.default_rng(0)
    shape = (RANDOM_PICTURES, 3, how.crop, how.crop)
    white = random.integers(0, 256, shape, dtype=np.uint8)
    spectrum = np.fft.rfft2(random.standard_normal(shape))
    frequency = np.hypot(np.fft.fftfreq(how.crop)[:, None], np.fft.rfftfreq(how.crop)[None])
    smooth = np.fft.irfft2(spectrum / np.maximum(frequency, 1 / how.crop), s=shape[2:])
    low, high = (smooth.min(axis=(2, 3), keepdims=True), smooth.max(axis=(2, 3), keepdims=True))
    natural = ((smooth - low) / (high - low) * 255).astype(np.uint8)
    return np.concatenate([white, natural])


def pictures(folder: Path | None, how: Transform) -> list[tuple[bytes, NDArray[np.uint8]]]:
    """Image files and their pixels [3, crop, crop]: a drawing, and what the folder holds."""
    drawing = io.BytesIO()
    mug().save(drawing, "PNG")
    files = [drawing.getvalue(), *(read(folder, MOST_PICTURES, "SAMPLES") if folder else [])]
    return [(file, to_pixels(file, how)) for file in files]


def read(folder: Path, most: int, setting: str) -> list[bytes]:
    """The image files in a folder and those below it."""
    if not folder.is_dir():
        raise UserError(f"{setting}={folder} is no folder", "name a folder with photos in it")
    found: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and len(found) < most and _is_picture(path.read_bytes()):
            found.append(path.read_bytes())
    if not found:
        raise UserError(f"{setting}={folder} holds no picture", "put a few photos in it")
    return found


def _is_picture(file: bytes) -> bool:
    """A note or a licence may lie among the photos."""
    try:
        to_pixels(file, Transform(resize=8, crop=8))
    except PictureError:
        return False
    return True
