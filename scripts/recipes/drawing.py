"""What was found in a picture, drawn into it."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.base import files
from scripts.base.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from bundle_client import Area, Box

# Apart from each other, and from most pictures.
COLOURS = ("#e6194b", "#3cb44b", "#ffe119", "#4363d8", "#f58231", "#42d4f4", "#f032e6", "#bfef45")
# From here on, letters are black.
BRIGHT = 130
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")

# What belongs to no class stays as it is.
NOTHING = "__background__"
OPACITY = 0.55
# The share of the picture that names may hide.
NAMED = 0.4


def require(pictures: Sequence[str], out: Path | None) -> None:
    """Raises UserError if the drawing could not be saved."""
    if out is None:
        return
    if out.suffix.lower() not in ENDINGS:
        raise UserError(
            f"OUT={out.name} does not say what kind of picture", f"use one of {', '.join(ENDINGS)}"
        )
    from bundle_client.sources import expand, is_written_over

    sources = list(expand(pictures))
    if len(sources) != 1:
        raise UserError(f"OUT= takes one picture, and there are {len(sources)}", "name one: IMG=")
    if is_written_over(sources[0], out):
        raise UserError(f"OUT={out} is the picture itself", "give another name")


def save(file: bytes, out: Path, draw: Callable[[Image], None]) -> None:
    from PIL import Image

    from bundle_serving.pictures import decode

    with Image.open(io.BytesIO(file)) as image:
        picture = decode(image)
    draw(picture)
    content = io.BytesIO()
    picture.save(content, Image.registered_extensions()[out.suffix.lower()])
    files.write_bytes(out, content.getvalue())


def boxes(picture: Image, found: Sequence[Box]) -> None:
    from PIL import ImageDraw

    pen = ImageDraw.Draw(picture)
    for box in reversed(found):  # the best on top
        colour = COLOURS[zlib.crc32(box.label.encode()) % len(COLOURS)]
        outline = (box.left, box.top, box.right, box.bottom)
        pen.rectangle(outline, outline=colour, width=_line(picture))
        name = _Name(picture, f"{box.label} {box.score:.0%}", colour)
        # Above the box, or in it where that is outside.
        name.write(box.left, box.top - name.height if box.top >= name.height else box.top)


def areas(picture: Image, mask: NDArray[np.uint8], found: Sequence[Area]) -> None:
    """Each class in a colour of its own, and what the colours mean."""
    import numpy as np
    from PIL import Image

    coloured = [each for each in found if not each.label.startswith(NOTHING)]
    for area in coloured:
        here = Image.fromarray((mask == area.index) * np.uint8(255 * OPACITY))
        there = here.resize(picture.size, Image.Resampling.NEAREST)
        picture.paste(_of_class(area.index), mask=there)
    top = 0.0
    for area in coloured:
        if top > picture.height * NAMED:
            break
        name = _Name(picture, f"{area.label} {area.share:.1%}", _of_class(area.index))
        name.write(0, top)
        top += name.height


def _of_class(index: int) -> str:
    """Apart from those of the classes before and after it: by the golden angle."""
    return f"hsv({index * 137.508 % 360:.0f},85%,{95 if index % 2 else 65}%)"


def _line(picture: Image) -> int:
    return max(2, min(picture.size) // 200)


class _Name:
    """A text on its colour."""

    def __init__(self, picture: Image, text: str, colour: str) -> None:
        from PIL import ImageDraw, ImageFont

        self._picture, self._text, self._colour = picture, text, colour
        self._line = _line(picture)
        self._pen = ImageDraw.Draw(picture)
        self._font = ImageFont.load_default(max(12, min(picture.size) // 30))
        *_, right, bottom = self._pen.textbbox((0, 0), text, self._font)
        self.width, self.height = right + 2 * self._line, bottom + self._line

    def write(self, left: float, top: float) -> None:
        """Never beyond the picture's edge."""
        from PIL import ImageColor

        x = max(0, min(left, self._picture.width - self.width))
        self._pen.rectangle((x, top, x + self.width, top + self.height), fill=self._colour)
        red, green, blue, *_ = ImageColor.getrgb(self._colour)
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < BRIGHT
        letters = "white" if dark else "black"
        self._pen.text((x + self._line, top), self._text, letters, self._font)
