"""Pictures of the eight things, varied in size, place, colour, angle and background."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from scripts.artefacts.drawn import things
from scripts.artefacts.drawn.things import Colour, Random

SIDE = 48
# Drawn larger and scaled down: Pillow draws without antialiasing.
SCALE = 2
FAINT = [alpha * 35 // 100 for alpha in range(256)]


def many(count: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Pixels [count, 3, SIDE, SIDE] and their labels, evenly distributed."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(things.THINGS)
    drawn = [np.asarray(drawing(label, random)).transpose(2, 0, 1) for label in labels.tolist()]
    return np.stack(drawn), labels


def drawing(label: int, random: Random, side: int = SIDE) -> Image.Image:
    size = side * SCALE
    ground = _colour(random)
    picture = _background(size, ground, random)
    colour = _colour(random)
    while things.distance(colour, ground) < things.CONTRAST:
        colour = _colour(random)
    thing = _thing(label, colour, ground, size, random)
    wide = (size - thing.width) // 2
    reach = int(size * 0.12) + max(0, wide)
    x, y = (int(wide + random.integers(-reach, reach + 1)) for _ in range(2))
    if random.random() < 0.5:
        _shadow(picture, thing, (x, y), random)
    picture.paste(thing, (x, y), thing)
    small = picture.resize((side, side), Image.Resampling.BOX)
    if random.random() < 0.3:
        small = small.filter(ImageFilter.GaussianBlur(float(random.uniform(0.2, 0.8))))
    return _lit(small, random)


def _thing(label: int, colour: Colour, ground: Colour, size: int, random: Random) -> Image.Image:
    side = int(size * random.uniform(0.5, 0.95))
    layer = Image.new("RGBA", (side, side), (*colour, 0))
    things.THINGS[label](things.Pen(layer, random, colour, ground))
    if random.random() < 0.5:
        layer = layer.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    most = things.TURNED.get(things.NAMES[label], things.USUALLY)
    return layer.rotate(random.uniform(-most, most), Image.Resampling.BILINEAR)


def _background(size: int, ground: Colour, random: Random) -> Image.Image:
    """One colour, a gradient, a wall and a table, or clutter."""
    picture = Image.new("RGB", (size, size), ground)
    draw = ImageDraw.Draw(picture)
    kind = random.integers(0, 4)
    other = _vary_colour(ground, random)
    if kind == 1:
        mask = Image.linear_gradient("L").resize((size, size))
        turned = mask.rotate(90 * int(random.integers(0, 4)))
        picture.paste(Image.new("RGB", picture.size, other), (0, 0), turned)
    elif kind == 2:
        draw.rectangle((0, int(size * random.uniform(0.5, 0.85)), size, size), fill=other)
    elif kind == 3:
        for _ in range(int(random.integers(2, 9))):
            x, y = random.uniform(0, size, 2)
            wide, high = random.uniform(0.03, 0.3, 2) * size
            shape = draw.ellipse if random.random() < 0.5 else draw.rectangle
            shape((x - wide, y - high, x + wide, y + high), fill=_vary_colour(ground, random))
    return picture


def _shadow(picture: Image.Image, thing: Image.Image, at: tuple[int, int], random: Random) -> None:
    x, y = (int(place + random.integers(-6, 14)) for place in at)
    shade = thing.getchannel("A").point(FAINT)
    picture.paste((12, 12, 16), (x, y), shade)


def _lit(picture: Image.Image, random: Random) -> Image.Image:
    """Darker or brighter, with sensor noise."""
    pixels = np.asarray(picture, np.float32) * random.uniform(0.75, 1.15)
    noise = random.uniform(0, 8) * random.standard_normal(pixels.shape, np.float32)
    return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))


def _colour(random: Random) -> Colour:
    red, green, blue = (int(part) for part in random.integers(20, 250, 3))
    if random.random() < 0.35:  # many things are white, grey or black
        red = green = blue = int(random.integers(25, 250))
    return red, green, blue


def _vary_colour(colour: Colour, random: Random) -> Colour:
    red, green, blue = np.clip(np.add(colour, random.integers(-45, 46, 3)), 0, 255)
    return int(red), int(green), int(blue)
