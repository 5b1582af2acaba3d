"""Eight things, each drawn in many variations inside the unit square."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Point = tuple[float, float]
Random = np.random.Generator

DARK, PALE = (32, 32, 36), (244, 243, 238)
BROWN, GOLD, LEAF = (96, 62, 38), (250, 196, 48), (58, 132, 62)

# The least contrast between a thing and its background.
CONTRAST = 110


def distance(one: Colour, other: Colour) -> float:
    return float(sum(abs(a - b) for a, b in zip(one, other, strict=True)))


@dataclass(frozen=True)
class Pen:
    """Draws in coordinates from 0 to 1, whatever the layer's size."""

    layer: Image.Image
    random: Random
    colour: Colour
    ground: Colour

    def pick(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def shade(self, factor: float, colour: Colour | None = None) -> Colour:
        red, green, blue = (min(255, int(part * factor)) for part in colour or self.colour)
        return red, green, blue

    def vary(self, colour: Colour, spread: int = 45) -> Colour:
        """Roughly this colour, slightly varied."""
        moved = np.clip(np.add(colour, self.random.integers(-spread, spread, 3)), 0, 255)
        return int(moved[0]), int(moved[1]), int(moved[2])

    def contrast(self, colour: Colour) -> Colour:
        """This colour if it contrasts with the background; otherwise the pen's, which does."""
        return colour if distance(colour, self.ground) > CONTRAST else self.colour

    def polygon(self, points: Sequence[Point], fill: Colour) -> None:
        self._draw.polygon([self._to_pixels(point) for point in points], fill=fill)

    def box(self, left: float, top: float, right: float, bottom: float, fill: Colour) -> None:
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], fill)

    def ellipse(self, x: float, y: float, wide: float, high: float, fill: Colour) -> None:
        """By its centre and two radii."""
        self._draw.ellipse(
            (*self._to_pixels((x - wide, y - high)), *self._to_pixels((x + wide, y + high))), fill
        )

    def ring(
        self, x: float, y: float, wide: float, high: float, thick: float, fill: Colour
    ) -> None:
        corners = (*self._to_pixels((x - wide, y - high)), *self._to_pixels((x + wide, y + high)))
        self._draw.ellipse(corners, outline=fill, width=self._wide(thick))

    def line(self, points: Sequence[Point], thick: float, fill: Colour) -> None:
        self._draw.line(
            [self._to_pixels(point) for point in points],
            fill,
            width=self._wide(thick),
            joint="curve",
        )

    @cached_property
    def _draw(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self.layer)

    def _to_pixels(self, point: Point) -> Point:
        return point[0] * self.layer.width, point[1] * self.layer.height

    def _wide(self, thick: float) -> int:
        return max(1, round(thick * self.layer.width))


def mug(pen: Pen) -> None:
    wide, top, bottom = pen.pick(0.2, 0.28), pen.pick(0.14, 0.26), pen.pick(0.76, 0.88)
    x, rim, taper = 0.42, pen.pick(0.035, 0.075), pen.pick(0.8, 1.0)
    middle, high = (top + bottom) / 2, (bottom - top) * pen.pick(0.26, 0.36)
    thick = pen.pick(0.05, 0.09)
    pen.ring(x + wide * 0.92, middle, pen.pick(0.16, 0.24), high, thick, pen.shade(0.82))
    pen.ellipse(x, bottom, wide * taper, rim, pen.colour)
    steps = 12  # a cylinder: light from the left, darker towards both edges
    for step in range(steps):
        left, right = (2 * (step + more) / steps - 1 for more in (0, 1))
        light = 1.06 - 0.35 * ((left + right) / 2 + 0.3) ** 2
        pen.polygon(
            [
                (x + wide * left, top),
                (x + wide * right, top),
                (x + wide * taper * right, bottom + rim * (1 - right**2) ** 0.5),
                (x + wide * taper * left, bottom + rim * (1 - left**2) ** 0.5),
            ],
            pen.shade(light),
        )
    pen.ellipse(x, top, wide, rim, pen.shade(1.1))
    inside = pen.vary(BROWN, 25) if pen.chance(0.7) else pen.shade(0.6)
    pen.ellipse(x, top, wide * 0.9, rim * 0.72, inside)
    if pen.chance(0.3):
        y = pen.pick(top + 0.2, bottom - 0.15)
        pen.box(x - wide * 0.96, y, x + wide * 0.96, y + pen.pick(0.04, 0.1), pen.vary(GOLD, 90))


def car(pen: Pen) -> None:
    roof, sill, floor = pen.pick(0.24, 0.36), pen.pick(0.46, 0.54), pen.pick(0.66, 0.74)
    front, rear = pen.pick(0.24, 0.32), pen.pick(0.66, 0.86)
    cabin = [(front - 0.08, sill), (front + 0.08, roof), (rear - 0.1, roof), (rear + 0.04, sill)]
    pen.polygon(cabin, pen.shade(0.92))
    glass = pen.vary((170, 205, 225), 30)
    middle = (front + rear) / 2
    for behind, ahead, lean in ((front, middle - 0.02, 0.1), (rear - 0.03, middle + 0.02, -0.09)):
        top = roof + 0.04
        pen.polygon([(behind, sill), (behind + lean, top), (ahead, top), (ahead, sill)], glass)
    hood, trunk = (0.1, sill - 0.01), (0.92, sill - 0.01)
    pen.polygon(
        [(0.03, sill + 0.05), hood, trunk, (0.97, sill + 0.06), (0.97, floor), (0.03, floor)],
        pen.colour,
    )
    pen.ellipse(0.06, sill + 0.1, 0.03, 0.03, pen.vary(GOLD, 30))
    radius = pen.pick(0.085, 0.115)
    for x in (pen.pick(0.2, 0.26), pen.pick(0.74, 0.8)):
        pen.ellipse(x, floor, radius, radius, DARK)
        pen.ellipse(x, floor, radius * 0.5, radius * 0.5, (168, 168, 172))


def tree(pen: Pen) -> None:
    trunk, thick = pen.vary(BROWN, 25), pen.pick(0.04, 0.08)
    leaf = pen.contrast(pen.vary(LEAF if pen.chance(0.8) else (206, 120, 40), 40))
    pen.box(0.5 - thick, 0.5, 0.5 + thick, 0.97, trunk)
    if pen.chance(0.45):  # a fir
        layers = int(pen.random.integers(2, 5))
        widest, top = pen.pick(0.24, 0.38), 0.04
        for layer in range(layers):
            wide = widest * (layer + 1.3) / (layers + 0.3)
            peak = top + 0.62 * layer / layers
            base = top + 0.72 * (layer + 1) / layers + 0.02
            pen.polygon(
                [(0.5, peak), (0.5 + wide, base), (0.5 - wide, base)],
                pen.shade(1 - 0.08 * (layers - layer), leaf),
            )
        return
    for _ in range(int(pen.random.integers(4, 9))):
        x, y, radius = pen.pick(0.32, 0.68), pen.pick(0.24, 0.46), pen.pick(0.14, 0.23)
        pen.ellipse(x, y, radius, radius, pen.shade(pen.pick(0.85, 1.12), leaf))


def house(pen: Pen) -> None:
    left, right = pen.pick(0.12, 0.22), pen.pick(0.78, 0.88)
    eaves, peak, over = pen.pick(0.4, 0.5), pen.pick(0.06, 0.2), pen.pick(0.03, 0.09)
    roof = pen.vary((150, 66, 48), 50)
    if pen.chance(0.5):
        x = pen.pick(0.62, 0.72)
        pen.box(x, pen.pick(0.08, 0.16), x + 0.08, eaves, pen.shade(0.7, roof))
    pen.box(left, eaves, right, 0.94, pen.colour)
    middle = 0.5 if pen.chance(0.7) else pen.pick(0.35, 0.65)
    pen.polygon([(left - over, eaves), (middle, peak), (right + over, eaves)], roof)
    door = pen.pick(0.3, 0.6)
    pen.box(door, pen.pick(0.64, 0.7), door + pen.pick(0.11, 0.16), 0.94, pen.vary(BROWN, 40))
    glass = pen.vary((190, 220, 235), 30) if pen.chance(0.6) else pen.vary((250, 214, 110), 30)
    for x in (left + 0.06, right - 0.19):
        if abs(x - door) > 0.14:
            pen.box(x - 0.015, 0.535, x + 0.145, 0.695, PALE)
            pen.box(x, 0.55, x + 0.13, 0.68, glass)
            pen.line([(x + 0.065, 0.55), (x + 0.065, 0.68)], 0.012, PALE)


def fish(pen: Pen) -> None:
    high, long, x = pen.pick(0.15, 0.26), pen.pick(0.28, 0.35), 0.42
    fin = pen.shade(pen.pick(0.65, 0.85))
    spread, fork = pen.pick(0.14, 0.26), pen.pick(0.0, 0.1)
    tail = [(x + long * 0.8, 0.5), (0.97, 0.5 - spread), (0.97 - fork, 0.5), (0.97, 0.5 + spread)]
    pen.polygon(tail, fin)
    pen.polygon([(x - 0.1, 0.52), (x + 0.04, 0.5 - high - 0.1), (x + 0.2, 0.5 - high * 0.4)], fin)
    if pen.chance(0.6):
        pen.polygon([(x, 0.5), (x + 0.06, 0.5 + high + 0.08), (x + 0.16, 0.5 + high * 0.5)], fin)
    pen.ellipse(x, 0.5, long, high, pen.colour)
    pen.ellipse(x, 0.5 + high * 0.4, long * 0.8, high * 0.5, pen.shade(1.15))
    if pen.chance(0.4):
        stripe = pen.vary(PALE if sum(pen.colour) < 380 else DARK, 30)
        for at in (-0.05, 0.1):
            reach = high * (1 - (at / long) ** 2) ** 0.5 * 0.95
            pen.line([(x + at, 0.5 - reach), (x + at, 0.5 + reach)], 0.035, stripe)
    eye = x - long * 0.62
    pen.ellipse(eye, 0.46, 0.045, 0.045, PALE)
    pen.ellipse(eye, 0.46, 0.024, 0.024, DARK)
    pen.line([(x - long * 0.97, 0.54), (x - long * 0.75, 0.57)], 0.014, DARK)


def key(pen: Pen) -> None:
    radius, thick = pen.pick(0.13, 0.2), pen.pick(0.045, 0.085)
    end = pen.pick(0.88, 0.96)
    bow = 0.06 + radius
    pen.ring(bow, 0.5, radius, radius * pen.pick(0.8, 1.1), pen.pick(0.05, 0.09), pen.colour)
    pen.line([(bow + radius - 0.02, 0.5), (end, 0.5)], thick, pen.colour)
    for tooth in range(int(pen.random.integers(2, 4))):
        x = end - 0.03 - tooth * pen.pick(0.08, 0.1)
        pen.box(x - 0.03, 0.5, x + 0.025, 0.5 + pen.pick(0.1, 0.19), pen.colour)


def sun(pen: Pen) -> None:
    colour = pen.contrast(pen.vary(GOLD if pen.chance(0.85) else (236, 96, 40), 40))
    radius, rays = pen.pick(0.17, 0.25), int(pen.random.integers(8, 17))
    start, reach = radius + pen.pick(0.02, 0.07), pen.pick(0.38, 0.48)
    turn, pointed = pen.pick(0, math.pi), pen.chance(0.5)
    thick, half = pen.pick(0.02, 0.045), pen.pick(0.35, 0.6) * math.pi / rays
    for ray in range(rays):
        angle = turn + 2 * math.pi * ray / rays
        far = reach * (0.85 if ray % 2 and pen.random.random() < 0.5 else 1)
        if pointed:
            left, right = (_polar(start, angle + side) for side in (-half, half))
            pen.polygon([left, _polar(far, angle), right], colour)
        else:
            pen.line([_polar(start, angle), _polar(far, angle)], thick, colour)
    pen.ellipse(0.5, 0.5, radius, radius, pen.shade(1.05, colour))


def bicycle(pen: Pen) -> None:
    radius, ground = pen.pick(0.17, 0.21), pen.pick(0.66, 0.72)
    rear, front = (0.04 + radius, ground), (0.96 - radius, ground)
    tyre, thick = pen.contrast(DARK), pen.pick(0.022, 0.04)
    spokes = int(pen.random.integers(0, 5)) * 2
    for x, y in (rear, front):
        for spoke in range(spokes):
            angle = math.pi * spoke / max(1, spokes)
            across = (radius * math.cos(angle), radius * math.sin(angle))
            ends = [(x - across[0], y - across[1]), (x + across[0], y + across[1])]
            pen.line(ends, 0.008, (150, 150, 154))
        pen.ring(x, y, radius, radius, pen.pick(0.022, 0.038), tyre)
    pedals, saddle = (0.47, ground), (pen.pick(0.34, 0.4), pen.pick(0.38, 0.44))
    head = (front[0] - 0.07, pen.pick(0.36, 0.42))
    for tube in ((rear, pedals), (rear, saddle), (saddle, pedals), (pedals, head), (saddle, head)):
        pen.line(tube, thick, pen.colour)
    pen.line([front, head, (head[0] - 0.02, head[1] - 0.09)], thick, pen.colour)
    bar = (head[0] - 0.02, head[1] - 0.09)
    pen.line([(bar[0] - 0.05, bar[1] + 0.01), bar, (bar[0] + 0.06, bar[1] - 0.02)], thick, DARK)
    pen.line([saddle, (saddle[0] - 0.02, saddle[1] - 0.06)], thick, pen.colour)
    pen.ellipse(saddle[0] - 0.03, saddle[1] - 0.07, 0.075, 0.026, DARK)


def _polar(radius: float, angle: float) -> Point:
    return 0.5 + radius * math.cos(angle), 0.5 + radius * math.sin(angle)


THINGS: tuple[Callable[[Pen], None], ...] = (mug, car, tree, house, fish, key, sun, bicycle)
NAMES = tuple(each.__name__ for each in THINGS)
# How far each may be rotated, in degrees.
TURNED = {"fish": 40, "key": 180, "sun": 180}
USUALLY = 20
