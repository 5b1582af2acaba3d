"""Sizes and ages of what lies on a disk, and the room that is left there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.base.errors import ROOM, UserError

DAY_S = 86_400

File = tuple[int, int]  # whatever its names


@dataclass(frozen=True)
class Item:
    """What takes room, for `make prune`."""

    what: str
    size: int
    days: int
    why: str  # it goes; empty: it stays
    remove: Callable[[], object] = lambda: None


def require_room(folder: Path, megabytes: int, what: str) -> None:
    """Before work begins that would otherwise fail half-way."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free >> 20
    if free < megabytes:
        raise UserError(f"{what} needs {megabytes} MB, and {folder} has {free} MB left", ROOM)


def measure_occupied(paths: Iterable[Path], elsewhere: Collection[File] = ()) -> int:
    """Bytes on disk. A file with several names counts once, and not at all if one is elsewhere."""
    blocks = {_file(each): each.st_blocks for each in _look_at(paths)}
    return 512 * sum(count for file, count in blocks.items() if file not in elsewhere)


def identify_files(paths: Iterable[Path]) -> set[File]:
    return {_file(each) for each in _look_at(paths)}


def days_old(path: Path) -> int:
    """Since anything in it was written."""
    written = [each.st_mtime for each in _look_at([path])]
    if not written and path.exists():
        written = [path.stat().st_mtime]
    return max(0, int((time.time() - max(written, default=time.time())) / DAY_S))


def readable(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _look_at(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    """At each file; what a server or another command has removed meanwhile takes no room."""
    for path in _files(paths):
        with suppress(FileNotFoundError):
            yield path.lstat()


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir() or path.is_symlink():
            yield path
        for folder, _, names in os.walk(path):
            yield from (Path(folder) / name for name in names)


def _file(status: os.stat_result) -> File:
    return status.st_dev, status.st_ino
