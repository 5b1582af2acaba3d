"""Pictures on which networks differ: noise, stripes, shapes and drawn things, at many scales.

What a lower precision costs shows where a network is unsure, and of these it is more often than of
photos. They need no download, and are the same on every machine.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from scripts.artefacts.drawn.drawings import drawing
from scripts.artefacts.drawn.things import THINGS, Random

# Of one channel, from -1 to 1, or of three, from 0 to 255.
Levels = NDArray[Any]


def scenes(count: int, height: int, width: int) -> NDArray[np.uint8]:
    """uint8 [count, 3, height, width], as many of each kind."""
    random = np.random.default_rng(0)
    drawn = [KINDS[number % len(KINDS)](random, height, width) for number in range(count)]
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
    return _levels(drawing(label, random, max(height, width)))[:, :height, :width]


def _behind_noise(random: Random, height: int, width: int) -> Levels:
    seen = np.float32(random.uniform(0.5, 0.95))
    thing, noise = _things(random, height, width), _noise(random, height, width)
    return seen * thing + (1 - seen) * noise


def _levels(picture: Image.Image) -> Levels:
    return np.asarray(picture, np.float32).transpose(2, 0, 1)


Kind = Callable[[Random, int, int], Levels]
KINDS: tuple[Kind, ...] = (_noise, _stripes, _shapes, _things, _behind_noise)
