"""The order in which files become visible, so that a server that starts meanwhile never finds half
a version: S3 has no rename, and a version folder exists from its first object on.

First what no version needs; then models (without model.py, a Python model makes Triton wait for
minutes; with it alone, Triton reports what is missing); then the files beside them; then configs;
last the ensembles, which name all the others. Deletion goes in reverse.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.base import files
from scripts.repository.history import SHOWN

# The record of an archived version: if it exists, so does the rest.
LAST = "version.json"


@dataclass(frozen=True)
class Local:
    name: str  # relative to the folder, with slashes
    path: Path | None  # None: an empty folder, which S3 represents by a marker
    size: int
    sha256: str
    rank: int = 0  # equal ranks may become visible in any order


def contents(folder: Path) -> list[Local]:
    """The folder's content, in upload order."""
    found = list(_walk(folder, ""))
    order = Order(each.name for each in found)
    ranked = (replace(each, rank=order.rank(each.name)) for each in found)
    return sorted(ranked, key=lambda each: (each.rank, -each.size, each.name))


class Order:
    def __init__(self, names: Iterable[str]) -> None:
        """Takes all names: an ensemble is a model whose version folders are empty."""
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
    return (
        name == SHOWN or name == "__pycache__" or (name.startswith(".") and name.endswith(".tmp"))
    )
