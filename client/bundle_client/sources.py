"""Where pictures come from: files, folders, bytes, URLs and open files."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

from .errors import SourceError, too_large

Source: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO
Sources: TypeAlias = str | os.PathLike[str] | bytes | Iterable[Source]

SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
)
SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def expand(sources: Sources) -> Iterator[Source]:
    """Each source in turn, a folder as the pictures in it, by name and without subfolders."""
    if isinstance(sources, (str, os.PathLike, bytes)):
        sources = [sources]
    for source in sources:
        # A folder that yields nothing is passed on: reading it tells why.
        yield from pictures_in(source) or [source]


def pictures_in(source: Source) -> list[Source]:
    if not isinstance(source, (str, os.PathLike)) or scheme_of(source):
        return []
    try:
        with os.scandir(source) as entries:
            names = sorted(e.name for e in entries if looks_like_picture(e.name) and e.is_file())
    except OSError:
        return []
    return [Path(source, name) for name in names]


def scheme_of(source: str | os.PathLike[str]) -> str:
    found = SCHEME.match(source) if isinstance(source, str) else None
    return found[1].lower() if found else ""


def looks_like_picture(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def name_of(source: Source) -> str:
    """What the source is called in results and messages."""
    if isinstance(source, bytes):
        return f"<{len(source)} bytes>"
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    return "-" if source is sys.stdin.buffer else str(getattr(source, "name", "<open file>"))


def read(source: Source, max_bytes: int, timeout: float) -> bytes:
    """The bytes of the picture, or a `SourceError`."""
    if isinstance(source, bytes):
        picture = source
    elif isinstance(source, (str, os.PathLike)):
        scheme = scheme_of(source)
        if not scheme:
            picture = read_file(source, max_bytes)
        elif scheme in ("http", "https"):
            from .fetch import fetch

            picture = fetch(os.fspath(source), max_bytes, timeout)
        else:
            raise SourceError(f"{scheme}:// is not read", "give a path or an http(s) URL")
    else:
        picture = source.read(max_bytes + 1)
    if not picture:
        raise SourceError("it is empty", "give a file with a picture in it")
    if len(picture) > max_bytes:
        raise too_large(max_bytes)
    return picture


def read_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    path = Path(path)
    try:
        if path.is_dir():
            raise folder_error(path)
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        raise SourceError("no such file", "check the path") from None
    except (OSError, ValueError) as exc:
        cause = getattr(exc, "strerror", None) or str(exc)
        raise SourceError(cause.lower(), "check the path and its permissions") from exc


def folder_error(path: Path) -> SourceError:
    if pictures_in(path):
        return SourceError("a folder, not a picture", "use classify_many for folders")
    return SourceError(
        "no pictures in this folder",
        "give one that holds files ending in .jpg, .png or the like; subfolders are not searched",
    )
