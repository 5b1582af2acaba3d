"""The pictures on which every step is compared with the previous one, and those on which networks
differ. What is drawn needs no download."""

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from bundle_serving.pictures import PictureError, Transform, to_pixels
from scripts.artefacts.drawn import drawings
from scripts.artefacts.drawn.things import THINGS, Random
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


# Of one channel, from -1 to 1, or of three, from 0 to 255.
Levels = NDArray[Any]


def draw_scenes(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """uint8 [count, 3, height, width], as many of each kind: noise, stripes, shapes and things, at
    many scales. What a lower precision costs shows where a network is unsure, and of these it is
    more often than of photos. They are the same on every machine."""
    random = np.random.default_rng(0)
    drawn = [SCENES[number % len(SCENES)](random, height, width) for number in range(count)]
    return np.stack([each.clip(0, 255).astype(np.uint8) for each in drawn])


def _clouds(random: Random, height: int, width: int) -> Levels:
    """Noise that is smooth or fine, and may be drawn out in one direction."""
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    frequency = np.hypot(down * random.uniform(0.2, 1), across)
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(random.standard_normal((height, width)))
    noise = np.fft.irfft2(spectrum / frequency ** random.uniform(0.4, 2), s=(height, width))
    clouds: Levels = np.tanh(noise / (noise.std() or 1)).astype(np.float32)
    return clouds


def _waves(random: Random, height: int, width: int) -> Levels:
    """Stripes or checks of any width and direction, straight or bent."""
    y, x = np.mgrid[:height, :width]
    bent = random.uniform(0, 8) * _clouds(random, height, width)
    angle, length = random.uniform(0, np.pi), np.exp(random.uniform(np.log(4), np.log(90)))
    along = x * np.cos(angle) + y * np.sin(angle) + bent
    across = y * np.cos(angle) - x * np.sin(angle) + bent
    stripes, others = (np.sin(each * 2 * np.pi / length) for each in (along, across))
    kinds = (stripes, np.sign(stripes), np.sign(stripes * others))
    waves: Levels = kinds[random.integers(len(kinds))].astype(np.float32)
    return waves


def _colour_levels(levels: Levels, random: Random) -> Levels:
    """From one colour to another."""
    one, other = random.uniform(0, 255, (2, 3, 1, 1)).astype(np.float32)
    coloured: Levels = one + (other - one) * (levels + 1) / 2
    return coloured


def _noise(random: Random, height: int, width: int) -> Levels:
    return _colour_levels(_clouds(random, height, width), random)


def _stripes(random: Random, height: int, width: int) -> Levels:
    return _colour_levels(_waves(random, height, width), random)


def _shapes(random: Random, height: int, width: int) -> Levels:
    """Ellipses, polygons and lines of any size before noise, sharp or blurred."""
    ground = _noise(random, height, width).astype(np.uint8)
    picture = Image.fromarray(ground.transpose(1, 2, 0))
    pen = ImageDraw.Draw(picture)
    for _ in range(random.integers(3, 30)):
        size = np.exp(random.uniform(np.log(3), np.log(max(width / 3, 3))))
        angles = np.sort(random.uniform(0, 2 * np.pi, random.integers(2, 9)))
        at = random.uniform(0, (width, height))
        points = at + size * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        corners = [(float(x), float(y)) for x, y in points]
        colour = "#{:02x}{:02x}{:02x}".format(*random.integers(0, 256, 3))
        kind = random.integers(3)
        if kind == 0:
            pen.ellipse((*(at - size), *(at + size * random.uniform(0, 1, 2))), fill=colour)
        elif kind == 1:
            pen.polygon(corners, fill=colour)
        else:
            pen.line(corners, fill=colour, width=max(1, int(size / 8)))
    return _levels(picture.filter(ImageFilter.GaussianBlur(random.uniform(0, 1.5))))


def _things(random: Random, height: int, width: int) -> Levels:
    label = int(random.integers(len(THINGS)))
    return _levels(drawings.drawing(label, random, max(height, width)))[:, :height, :width]


def _behind_noise(random: Random, height: int, width: int) -> Levels:
    seen = np.float32(random.uniform(0.5, 0.95))
    thing, noise = _things(random, height, width), _noise(random, height, width)
    return seen * thing + (1 - seen) * noise


def _levels(picture: Image.Image) -> Levels:
    return np.asarray(picture, np.float32).transpose(2, 0, 1)


Kind = Callable[[Random, int, int], Levels]
SCENES: tuple[Kind, ...] = (_noise, _stripes, _shapes, _things, _behind_noise)
