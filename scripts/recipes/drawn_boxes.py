"""Boxes with their labels, drawn into the picture that they were found in."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.base import files
from scripts.base.errors import UserError

if TYPE_CHECKING:
    from PIL.Image import Image

    from bundle_client import Box

# Apart from each other, and from most pictures; with dark or light letters on them.
COLOURS = ("#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#42d4f4", "#f032e6", "#bfef45")
DARK = ("#e6194b", "#4363d8", "#f032e6")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def require(out: Path | None, pictures: int) -> None:
    """Raises UserError if the drawing could not be saved."""
    if out is None:
        return
    if out.suffix.lower() not in ENDINGS:
        raise UserError(
            f"OUT={out.name} does not say what kind of picture", f"use one of {', '.join(ENDINGS)}"
        )
    if pictures != 1:
        raise UserError(f"OUT= takes one picture, and there are {pictures}", "name one: IMG=")


def save(file: bytes, boxes: Sequence[Box], out: Path) -> None:
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(file)) as image:
        picture = ImageOps.exif_transpose(image).convert("RGB")
    draw(picture, boxes)
    content = io.BytesIO()
    picture.save(content, Image.registered_extensions()[out.suffix.lower()])
    files.write_bytes(out, content.getvalue())


def draw(picture: Image, boxes: Sequence[Box]) -> None:
    from PIL import ImageDraw, ImageFont

    side = min(picture.size)
    line = max(2, side // 200)
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(max(12, side // 30))
    for box in reversed(boxes):  # the best on top
        colour = COLOURS[zlib.crc32(box.label.encode()) % len(COLOURS)]
        pen.rectangle((box.left, box.top, box.right, box.bottom), outline=colour, width=line)
        text = f"{box.label} {box.score:.0%}"
        *_, right, bottom = pen.textbbox((0, 0), text, font)
        width, height = right + 2 * line, bottom + line
        # Above the box, or in it where that is outside; never beyond the picture's edge.
        x = max(0, min(box.left, picture.width - width))
        y = box.top - height if box.top >= height else box.top
        pen.rectangle((x, y, x + width, y + height), fill=colour)
        pen.text((x + line, y), text, "white" if colour in DARK else "black", font)
