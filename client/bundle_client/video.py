"""The frames of a video: of a file, a camera, or an address."""

import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .errors import SourceError
from .sources import scheme_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Frames of a file that are decoded while one is being answered.
AHEAD = 2
# Larger frames are sent smaller: most networks see less, and pixels take long to send.
SHORT_SIDE = 512
CAMERA, CAMERA_FORMAT = "/dev/video", "v4l2"
PATIENCE_S = 10  # with a source that does not answer, or sends nothing more
SILENT = f"nothing came for {PATIENCE_S} s"
CHECK = "check the address"
AGAIN = "check the source, and watch it again"
ANOTHER = "give a file that FFmpeg reads, such as .mp4, .mkv or .webm"


class BrokenOff(SourceError):
    """The source could be read up to here."""


@dataclass(frozen=True)
class Frame:
    number: int  # in the video, from 1
    seconds: float  # since its first frame
    image: Any  # PyAV's

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, upright."""
        sides = self.image.width, self.image.height
        return sides if self.image.rotation % 180 == 0 else sides[::-1]

    def pixels(self, short_side: int | None = None) -> "NDArray[np.uint8]":
        """Upright, as RGB; smaller if its short side is longer than this."""
        import numpy as np

        width, height = self.image.width, self.image.height
        scale = min(1.0, (short_side or min(width, height)) / min(width, height))
        pixels = self.image.to_ndarray(
            format="rgb24", width=round(width * scale), height=round(height * scale)
        )
        return np.ascontiguousarray(np.rot90(pixels, self.image.rotation // 90))


def is_live(source: str) -> bool:
    return source.isdecimal() or scheme_of(source) in ("rtsp", "rtsps")


def hide_password(source: str) -> str:
    """Without the password that an address may have."""
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:…@", source)


def require(source: str) -> None:
    """Raises a `SourceError` if it is a file that is no video."""
    if not is_live(source):
        with open_video(source):
            pass


@contextmanager
def open_video(source: str) -> Iterator[Any]:
    """PyAV's stream of pictures."""
    av = ffmpeg()
    name, options = source, {}
    if source.isdecimal():
        name, options = f"{CAMERA}{source}", {"format": CAMERA_FORMAT}
    elif not scheme_of(source) and Path(source).is_dir():
        raise SourceError("a folder, not a video", ANOTHER)
    began = time.monotonic()
    try:
        container = av.open(name, timeout=PATIENCE_S, **options)
    except (av.error.FFmpegError, OSError, ValueError) as fault:
        raise unreadable(source, fault, time.monotonic() - began) from None
    with container:
        if not container.streams.video:
            raise SourceError("there is no video in it", ANOTHER)
        stream = container.streams.video[0]
        # Frames that are decoded side by side each wait for the next ones to come.
        stream.thread_type = "SLICE" if is_live(source) else "AUTO"
        yield stream


def ffmpeg() -> Any:
    try:
        import av
    except ImportError:
        raise SourceError("reading a video needs PyAV", "pip install './client[video]'") from None
    return av


def unreadable(source: str, fault: Exception, seconds: float) -> SourceError:
    if isinstance(fault, FileNotFoundError):
        if source.isdecimal():
            return SourceError(f"there is no camera {CAMERA}{source}", "see /dev/video*")
        return SourceError("no such file", "check the path")
    if scheme_of(source) or source.isdecimal():
        # FFmpeg gives another reason when it has waited in vain.
        why = reason(fault) if seconds < PATIENCE_S else SILENT
        return SourceError(f"it does not open ({why})", CHECK)
    return SourceError(f"it is not a video ({reason(fault)})", ANOTHER)


def reason(fault: Exception) -> str:
    if isinstance(fault, ffmpeg().error.ExitError):
        return SILENT
    return (getattr(fault, "strerror", None) or str(fault)).lower()


class Frames:
    """All frames of a file, in order; of a live source, at each time the newest."""

    def __init__(self, source: str, live: bool = False) -> None:
        self._source = source
        self._live = live or is_live(source)
        self._paced = live and not is_live(source)
        self._ready: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._fault: Exception | None = None
        self.seen = self.dropped = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[Frame]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._ended)
                if not self._ready:
                    break
                frame = self._ready.popleft()
                self._changed.notify_all()
            yield frame
        if self._fault:
            raise self._fault
        live = is_live(self._source)
        if not self.seen:
            raise SourceError("there is no frame in it", CHECK if live else ANOTHER)
        if live:  # of which FFmpeg does not say whether its connection was lost
            raise BrokenOff("it has ended", AGAIN)

    def _read(self) -> None:
        try:
            with open_video(self._source) as stream:
                for frame in self._decode(stream):
                    if not self._hand_over(frame):
                        break
        except Exception as fault:
            self._fault = fault
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _decode(self, stream: Any) -> Iterator[Frame]:
        began, first, last = time.monotonic(), None, None
        step = 1 / float(stream.guessed_rate or 25)  # as FFmpeg, where it says none
        for image in images(stream):
            at = image.time
            if is_live(self._source):
                at = time.monotonic() - began if at is None else at
            elif at is None or (last is not None and at <= last):
                at = 0.0 if last is None else last + step
            first, last = at if first is None else first, at
            frame = Frame(self.seen + 1, at - first, image)
            if self._paced:
                time.sleep(max(0, began + frame.seconds - time.monotonic()))
            yield frame

    def _hand_over(self, frame: Frame) -> bool:
        """False if nobody wants more."""
        with self._changed:
            if not self._live:
                self._changed.wait_for(lambda: len(self._ready) < AHEAD or self._closed)
            elif self._ready:
                self._ready.clear()
                self.dropped += 1
            self.seen += 1
            self._ready.append(frame)
            self._changed.notify_all()
            return not self._closed


def images(stream: Any) -> Iterator[Any]:
    """What can be decoded: a damaged part is left out."""
    error = ffmpeg().error
    try:
        for packet in stream.container.demux(stream):
            try:
                yield from packet.decode()
            except error.InvalidDataError:
                continue
    except error.FFmpegError as fault:
        raise BrokenOff(f"it broke off ({reason(fault)})", AGAIN) from None
