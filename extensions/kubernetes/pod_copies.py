"""Copies of what was live that pods read from another place, each in a folder that never changes;
and which of them no pod can want any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from scripts.repository.place import Folder

# Beside a copy: written anew whenever an overlay names it.
MARK = ".named"
# What a Deployment runs, and the ten revisions that `kubectl rollout undo` can go back to.
REVISIONS = 11


@dataclass(frozen=True)
class Copy:
    name: str
    size: int
    # Since the last overlay that named it.
    days: int
    is_among_the_last: bool


def write(copies: Folder, folder: Path, name: str, known: str) -> str:
    """Returns its address."""
    copies.mirror(folder, to=name, known=known)
    copies.write(name + MARK, b"")
    return f"{copies.location}/{name}"


def read(copies: Folder) -> Iterator[Copy]:
    """The last one first. Of one without a mark, an earlier bundle's, its files have the time."""
    found = []
    stored = sorted(copies.list_stored().items())
    for name, parts in groupby(stored, key=lambda item: _copy_of(item[0])):
        objects = [each for _, each in parts]
        modified = max(each.modified for each in objects)
        found.append((modified, name, sum(each.size for each in objects)))
    now = datetime.now(UTC)
    for place, (modified, name, size) in enumerate(sorted(found, reverse=True)):
        yield Copy(name, size, (now - modified).days, place < REVISIONS)


def remove(copies: Folder, name: str) -> None:
    copies.remove(f"{name}/")
    copies.remove(name + MARK)


def _copy_of(path: str) -> str:
    return path.partition("/")[0].removesuffix(MARK)
