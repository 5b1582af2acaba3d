"""The pictures on which every step is compared with the previous one."""

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from bundle_serving.pictures import PictureError, Transform, to_pixels
from scripts.artefacts.manifest import MOST_SAMPLES
from scripts.artefacts.picture import mug
from scripts.base.errors import UserError

RANDOM_PICTURES = 4
MOST_PICTURES = MOST_SAMPLES
DRAWN_SIDE = 320
# A file that is larger is a video, say, and is not read into memory to be tried.
MOST_BYTES = 2**29


def noise(how: Transform) -> NDArray[np.uint8]:
    """uint8 [n, 3, height, width]: white noise, and noise with the spectrum of a photograph."""
    random = np.random.default_rng(0)
    height, width = how.sides
    shape = (RANDOM_PICTURES, 3, height, width)
    white = random.integers(0, 256, shape, dtype=np.uint8)
    spectrum = np.fft.rfft2(random.standard_normal(shape))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    smooth = np.fft.irfft2(spectrum / np.maximum(frequency, 1 / max(shape[2:])), s=shape[2:])
    low, high = (smooth.min(axis=(2, 3), keepdims=True), smooth.max(axis=(2, 3), keepdims=True))
    natural = ((smooth - low) / (high - low) * 255).astype(np.uint8)
    return np.concatenate([white, natural])


def pictures(folder: Path | None, how: Transform) -> list[tuple[bytes, NDArray[np.uint8]]]:
    """Image files and their pixels [3, height, width]: a drawing, and the folder's pictures."""
    drawing = io.BytesIO()
    mug().save(drawing, "PNG")
    files = [drawing.getvalue(), *(read(folder, MOST_PICTURES, "SAMPLES") if folder else [])]
    return [(file, to_pixels(file, how)) for file in files]


def make_varied() -> list[bytes]:
    """Image files for when there are few photos: the mug from several angles, and noise."""
    random = np.random.default_rng(0)
    drawing = mug()
    images = [_shot(drawing, random) for _ in range(MOST_PICTURES - 2 * RANDOM_PICTURES)]
    square = Transform(DRAWN_SIDE, DRAWN_SIDE)
    images += [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in noise(square)]
    return [_file(image) for image in images]


def of_sizes(sizes: Sequence[tuple[int, int]]) -> list[bytes]:
    """Of these, each of its own width and height."""
    found = []
    for file, size in zip(make_varied(), sizes, strict=False):
        content = io.BytesIO()
        Image.open(io.BytesIO(file)).resize(size).save(content, "PNG")
        found.append(content.getvalue())
    return found


def _shot(drawing: Image.Image, random: np.random.Generator) -> Image.Image:
    turned = drawing.rotate(random.uniform(-30, 30), Image.Resampling.BILINEAR, expand=True)
    width, height = turned.size
    part = random.uniform(0.5, 1)
    left, top = random.uniform(0, 1 - part, 2)
    box = (left * width, top * height, (left + part) * width, (top + part) * height)
    seen = turned.resize((DRAWN_SIDE, DRAWN_SIDE), Image.Resampling.BILINEAR, box)
    if random.random() < 0.5:
        seen = ImageOps.mirror(seen)
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast):
        seen = enhance(seen).enhance(random.uniform(0.6, 1.4))
    return seen


def _file(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92)
    return file.getvalue()


def read(folder: Path, most: int, setting: str) -> list[bytes]:
    """The image files in a folder and its subfolders."""
    if not folder.is_dir():
        raise UserError(f"{setting}={folder} is not a folder", "name a folder that contains photos")
    found: list[bytes] = []
    for path in sorted(folder.rglob("*")):
        if len(found) == most:
            break
        if path.is_file() and path.stat().st_size <= MOST_BYTES:
            file = path.read_bytes()
            with suppress(PictureError):  # other files among the photos, such as a licence
                to_pixels(file, Transform(resize=8, crop=8))
                found.append(file)
    if not found:
        raise UserError(f"{setting}={folder} contains no pictures", "put a few photos in it")
    return found
