"""A video with its labels in the picture."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from .errors import SourceError
from .sources import is_written_over
from .video import Frame, ffmpeg

TIME_BASE = Fraction(1, 1000)
USUAL = {".mp4": "libx264", ".mkv": "libx264", ".mov": "libx264", ".webm": "libvpx-vp9"}


def require(out: Path, source: str) -> None:
    """Raises a `SourceError` if it cannot be written."""
    if is_written_over(source, out):
        raise SourceError(f"{out} is the video itself", "give another name")
    if out.suffix.lower() not in USUAL:
        raise SourceError(
            f"{out.name} does not say what kind of video", f"use one of {', '.join(USUAL)}"
        )
    if not out.absolute().parent.is_dir():
        raise SourceError(f"there is no folder {out.parent}", "create it")


class Annotated:
    """Written beside its place, and put there once it is whole."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._draft = out.with_name(f".{out.stem}.part{out.suffix}")
        self._container: Any = None
        self._stream: Any = None
        self._last = -1

    def add(self, frame: Frame, text: str) -> None:
        image = ffmpeg().VideoFrame.from_image(draw_text(frame, text))
        self._last = max(self._last + 1, round(frame.seconds / TIME_BASE))
        image.pts, image.time_base = self._last, TIME_BASE
        with self._faults():
            if self._container is None:
                self._open(*frame.size)
            self._container.mux(self._stream.encode(image))

    def _open(self, width: int, height: int) -> None:
        self._container = ffmpeg().open(str(self._draft), "w")
        self._stream = self._container.add_stream(USUAL[self._out.suffix.lower()], rate=30)
        self._stream.width, self._stream.height = width // 2 * 2, height // 2 * 2
        self._stream.pix_fmt = "yuv420p"
        self._stream.codec_context.time_base = TIME_BASE

    def close(self) -> None:
        with self._faults():
            if self._container is not None:
                self._container.mux(self._stream.encode())
                self._container.close()
                self._container = None
                self._draft.replace(self._out)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            cause = (fault.strerror or str(fault)).lower()
            raise SourceError(f"{self._out} cannot be written ({cause})", "check it") from fault

    def discard(self) -> None:
        if self._container is not None:
            with suppress(OSError):  # on a full disk it cannot end the file
                self._container.close()
        self._draft.unlink(missing_ok=True)


@contextmanager
def writing(out: Path | None, source: str) -> Iterator[Callable[[Frame, str], None]]:
    """Takes frames with their texts; nowhere, if there is no `out`."""
    if out is None:
        yield lambda frame, text: None
        return
    require(out, source)
    written = Annotated(out)
    try:
        yield written.add
        written.close()
    finally:
        written.discard()


def draw_text(frame: Frame, text: str) -> Any:
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(frame.pixels())
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(max(12, min(picture.size) // 16))
    *_, right, bottom = pen.textbbox((0, 0), text, font)
    margin = max(2, bottom // 4)
    y = picture.height - bottom - 2 * margin
    pen.rectangle((0, y, right + 2 * margin, picture.height), "black")
    pen.text((margin, y + margin), text, "white", font)
    return picture
