"""Where pictures and sounds come from: files, folders, bytes, URLs, open files and pixels."""

import io
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeGuard, Union, cast

from .errors import CONCERNS_ALL, ClientError, SourceError, too_large
from .server import TIMEOUT_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    Array = NDArray[np.uint8]

# A path or URL, the bytes of a picture's file, an open file, or pixels.
Source: TypeAlias = Union[str, os.PathLike[str], bytes, BinaryIO, "Image", "Array"]
Sources: TypeAlias = Source | Iterable[Source]
MAX_BYTES = 64_000_000
TAKEN = "a path or URL, the bytes of a picture, an open file, a PIL image or a numpy array"


@dataclass(frozen=True)
class Kind:
    """What files are of, and how their names end; several are asked about by another method."""

    name: str
    suffixes: tuple[str, ...]
    several: str

    def has(self, name: str) -> bool:
        return not name.startswith(".") and name.lower().endswith(self.suffixes)


PICTURES = Kind(
    "picture",
    (
        *(".jpg", ".png", ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg"),
        *(".tif", ".tiff", ".webp"),
    ),
    "use classify_many for folders",
)
SOUNDS = Kind("sound", (".wav", ".wave"), "name the files in it")
# By number of channels: grey, grey with alpha, RGB, RGBA.
COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
SAVED_AS_PNG = ("1", "L", "LA", "I;16", "P", "RGB", "RGBA")
# Wider than PNG can be; how it is to be seen, the server decides, as of a file.
SAVED_AS_TIFF = ("I", "F")
# What else has transparency -> how PNG has it.
WITH_ALPHA = {"La": "LA", "PA": "RGBA", "RGBa": "RGBA"}
SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def expand(sources: Sources, kind: Kind = PICTURES) -> Iterator[Source]:
    """Each source in turn; a folder as its files of that kind, sorted by name, without
    subfolders."""
    for source in in_turn(sources):
        # A folder without any is passed on: reading it reports why.
        yield from files_in(source, kind) or [source]


def in_turn(sources: Sources) -> Iterable[Source]:
    if is_array(sources):  # with more dimensions than a picture, it is several pictures
        return [sources] if sources.ndim < 4 else list(sources)
    # An open file has lines.
    if isinstance(sources, (str, bytes)) or hasattr(sources, "read"):
        return [cast("Source", sources)]
    return sources if isinstance(sources, Iterable) else [sources]


def files_in(source: Source, kind: Kind = PICTURES) -> list[Source]:
    if not isinstance(source, (str, os.PathLike)) or scheme_of(source):
        return []
    try:
        return [*list_files(source, kind)]
    except (OSError, ValueError):
        return []


def list_files(folder: str | os.PathLike[str], kind: Kind) -> list[Path]:
    """An `OSError` where the folder cannot be read; links that lead to no file are passed over."""
    with os.scandir(folder) as entries:
        named = [each for each in entries if kind.has(each.name)]
    is_file = os.path.isfile  # which raises nothing, wherever a link leads
    files = (each.name for each in named if each.is_file(follow_symlinks=False) or is_file(each))
    return [Path(folder, name) for name in sorted(files)]


def scheme_of(source: str | os.PathLike[str]) -> str:
    found = SCHEME.match(source) if isinstance(source, str) else None
    return found[1].lower() if found else ""


def name_of(source: Source) -> str:
    """The source's name in results and messages."""
    if isinstance(source, bytes):
        return f"<{len(source)} bytes>"
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    if is_array(source):
        return f"<array {'x'.join(map(str, source.shape))}>"
    if is_image(source):
        return getattr(source, "filename", "") or f"<image {source.width}x{source.height}>"
    return "-" if is_standard_input(source) else str(getattr(source, "name", "<open file>"))


def is_standard_input(source: Source) -> bool:
    return sys.stdin is not None and source is sys.stdin.buffer


@contextmanager
def name_in_errors(source: Source) -> Iterator[None]:
    """Adds the picture's name to errors that concern only this picture."""
    try:
        yield
    except ClientError as exc:
        if not isinstance(exc, CONCERNS_ALL):
            exc.source = name_of(source)
        raise


def read(
    source: Source,
    max_bytes: int = MAX_BYTES,
    timeout: float = TIMEOUT_S,
    kind: Kind = PICTURES,
) -> bytes:
    """The bytes of the file, or a `SourceError`."""
    if isinstance(source, bytes):
        picture = source
    elif is_array(source):
        picture = array_file(source)
    elif is_image(source):
        picture = image_file(source)
    elif isinstance(source, (str, os.PathLike)):
        scheme = scheme_of(source)
        if not scheme:
            picture = read_file(source, max_bytes, kind)
        elif scheme in ("http", "https"):
            from .transport.fetch import fetch

            picture = fetch(os.fspath(source), max_bytes, timeout)
        else:
            raise SourceError(f"{scheme}:// is not supported", "give a path or an http(s) URL")
    elif hasattr(source, "read"):
        picture = read_open_file(source, max_bytes)
    else:
        raise TypeError(f"{type(source).__name__} cannot be used as a picture; give {TAKEN}")
    if not picture:
        raise SourceError("it is empty", f"use a {kind.name} file")
    if len(picture) > max_bytes:
        raise too_large(max_bytes)
    return picture


def read_open_file(file: Any, max_bytes: int) -> bytes:
    try:
        content = file.read(max_bytes + 1)
    except (OSError, ValueError) as exc:  # closed, or text that is none
        raise SourceError(f"cannot be read ({exc})", 'open the file with "rb"') from exc
    if not isinstance(content, bytes):
        raise SourceError("gives text, not bytes", 'open the file with "rb"')
    return content


def read_file(path: str | os.PathLike[str], max_bytes: int, kind: Kind) -> bytes:
    if not os.fspath(path):  # of which Path makes the working directory
        raise SourceError("the path is empty", "name a file")
    path = Path(path)
    try:
        if path.is_dir():
            raise folder_error(path, kind)
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        raise SourceError("no such file", "check the path") from None
    except (OSError, ValueError) as exc:
        cause = getattr(exc, "strerror", None) or str(exc)
        raise SourceError(cause.lower(), "check the path and its permissions") from exc


def folder_error(path: Path, kind: Kind) -> SourceError:
    if list_files(path, kind):
        return SourceError(f"a folder, not a {kind.name}", kind.several)
    first, second, *_ = kind.suffixes
    return SourceError(
        f"no {kind.name}s in this folder",
        f"give one with files ending in {first}, {second} or the like; subfolders are not searched",
    )


def is_written_over(source: Source, out: Path) -> bool:
    """Whether a result in `out` would take the place of what it was asked about."""
    try:
        return isinstance(source, str | os.PathLike) and out.samefile(source)
    except (OSError, ValueError):  # no file, or an address
        return False


def is_image(source: object) -> "TypeGuard[Image]":
    """Whether it is a Pillow image, without importing Pillow, which is optional."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return image is not None and isinstance(source, image)


def is_array(source: object) -> "TypeGuard[Array]":
    # Another thread may be about to import it.
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    return array is not None and isinstance(source, array)


def image_file(image: "Image") -> bytes:
    """The image, upright, and uncompressed: compressing takes longer than sending."""
    from PIL import ImageOps

    file = io.BytesIO()
    try:
        upright = ImageOps.exif_transpose(image)
        if upright.mode in SAVED_AS_TIFF:
            upright.save(file, "TIFF")
        else:
            for_png(upright).save(file, "PNG", compress_level=0)
    except Exception as exc:  # Pillow reads the file only now, and has no error of its own
        raise SourceError(f"the image cannot be read ({exc})", "check its file") from exc
    return file.getvalue()


def for_png(image: "Image") -> "Image":
    """In a mode that PNG has."""
    if image.mode in SAVED_AS_PNG:
        return image
    if image.mode.startswith("I;16"):  # as a TIFF of a Macintosh has it; at once Pillow clips it
        return image.convert("I").convert("I;16")
    return image.convert(WITH_ALPHA.get(image.mode, "RGB"))


def array_file(array: "Array") -> bytes:
    """The pixels as a PNG, without Pillow."""
    import numpy as np

    pixels = array[..., np.newaxis] if array.ndim == 2 else array
    whole = pixels.ndim == 3 and pixels.size and pixels.shape[2] in COLOUR_TYPES
    if not whole or pixels.dtype != np.uint8:
        raise SourceError(
            f"an array of {array.dtype} {list(array.shape)} is not a picture",
            "give uint8 [height, width, 3], as RGB from 0 to 255",
        )
    height, width, channels = pixels.shape
    header = struct.pack(">2I5B", width, height, 8, COLOUR_TYPES[channels], 0, 0, 0)
    # Each row begins with the number of its filter: none.
    rows = np.pad(pixels.reshape(height, width * channels), ((0, 0), (1, 0)))
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
