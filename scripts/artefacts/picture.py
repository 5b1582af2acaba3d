"""Draws a picture of something that is an ImageNet class: a coffee mug."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter

# Drawn large and scaled down: Pillow draws without antialiasing.
SCALE = 4
WIDTH, HEIGHT = 640, 480
WALL, TABLE = (206, 198, 186), (126, 88, 60)


def mug() -> Image.Image:
    width, height = WIDTH * SCALE, HEIGHT * SCALE
    picture = Image.new("RGB", (width, height), WALL)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, height * 0.68, width, height), fill=TABLE)
    _shadow(picture)
    _handle(draw)
    _body(picture)
    draw = ImageDraw.Draw(picture)
    left, right, top = 210 * SCALE, 410 * SCALE, 110 * SCALE
    rim = 26 * SCALE
    draw.ellipse((left, top - rim, right, top + rim), fill=(236, 236, 232))
    inset = 9 * SCALE
    draw.ellipse(
        (left + inset, top - rim + inset, right - inset, top + rim - inset // 2), fill=(58, 34, 20)
    )
    return picture.filter(ImageFilter.GaussianBlur(SCALE / 2)).resize(
        (WIDTH, HEIGHT), Image.Resampling.LANCZOS
    )


def _shadow(picture: Image.Image) -> None:
    shade = Image.new("L", picture.size, 0)
    ImageDraw.Draw(shade).ellipse((200 * SCALE, 345 * SCALE, 520 * SCALE, 405 * SCALE), fill=130)
    shade = shade.filter(ImageFilter.GaussianBlur(14 * SCALE))
    picture.paste((30, 20, 12), (0, 0), shade)


def _handle(draw: ImageDraw.ImageDraw) -> None:
    box = [value * SCALE for value in (368, 160, 480, 310)]
    draw.ellipse(box, outline=(176, 176, 172), width=24 * SCALE)
    box = [value * SCALE for value in (371, 163, 477, 307)]
    draw.ellipse(box, outline=(214, 214, 210), width=14 * SCALE)


def _body(picture: Image.Image) -> None:
    """A cylinder: light from the left, darker towards both edges."""
    left, right, top, bottom, rim = (value * SCALE for value in (210, 410, 110, 360, 26))
    outline = Image.new("L", picture.size, 0)
    draw = ImageDraw.Draw(outline)
    draw.rectangle((left, top, right, bottom), fill=255)
    draw.ellipse((left, bottom - rim, right, bottom + rim), fill=255)
    shades = Image.new("RGB", picture.size)
    draw = ImageDraw.Draw(shades)
    for x in range(left, right + 1):
        across = (x - left) / (right - left)
        light = 1 - 1.5 * (across - 0.35) ** 2
        draw.line((x, 0, x, picture.height), fill=tuple(int(c * light) for c in (240, 240, 236)))
    picture.paste(shades, (0, 0), outline)


def draw_file(out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    mug().save(out, quality=92)
