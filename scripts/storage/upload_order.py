"""In which order files become visible, so that no server that starts meanwhile finds half a
version: S3 has no rename, and a version is there with its first object.

What no version needs comes first; then models (a Python model's folder without its model.py makes
Triton wait for minutes; with it and nothing else, it says what it lacks); then what lies beside
them; then configurations; last the ensembles, that name them all. Things go the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.base import files

# The record of a version that is kept: where it stands, all the rest does.
LAST = "version.json"


@dataclass(frozen=True)
class Local:
    name: str  # below the folder, with slashes
    path: Path | None  # None: a folder with nothing in it, which S3 knows only by a marker
    size: int
    sha256: str
    rank: int = 0  # what has the same one may come in any order


def contents(folder: Path) -> list[Local]:
    """What is to be there, in the order in which it is put there."""
    found = list(_walk(folder, ""))
    order = Order(each.name for each in found)
    ranked = (replace(each, rank=order.rank(each.name)) for each in found)
    return sorted(ranked, key=lambda each: (each.rank, -each.size, each.name))


class Order:
    def __init__(self, names: Iterable[str]) -> None:
        """Of these together: an ensemble is a model with nothing in its version folders."""
        given = list(names)
        self._members = {name.partition("/")[0] for name in given if _of_a_version(name)}

    def rank(self, name: str) -> int:
        model, _, rest = name.partition("/")
        folder, _, file = rest.partition("/")
        if name == LAST:
            return 7
        if model not in self._members:
            return 6 if name.endswith(".pbtxt") else 5
        if folder.isdecimal():
            return 2 if file.startswith("model.") else 3
        return 4 if name.endswith(".pbtxt") else 1


def _of_a_version(name: str) -> bool:
    folder, _, file = name.partition("/")[2].partition("/")
    return folder.isdecimal() and file not in ("", ".gitkeep")


def _walk(folder: Path, prefix: str) -> Iterator[Local]:
    entries = [entry for entry in sorted(folder.iterdir()) if not _passing(entry.name)]
    if prefix and not entries:
        yield Local(prefix, None, 0, "")
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield Local(f"{prefix}{entry.name}", entry, entry.stat().st_size, files.sha256(entry))


def _passing(name: str) -> bool:
    return name == "__pycache__" or (name.startswith(".") and name.endswith(".tmp"))
