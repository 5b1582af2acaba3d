"""Puts what an export made into a repository, where it is not there yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts import files

MANIFEST = "manifest.json"

# What exports put into a repository; .gitignore names the same.
PUT = ("*/1/model.onnx", "*/1/manifest.json", "*/1/labels.txt", "*/1/tokenizer/*", "*/labels.txt")


def put(made: Path, places: Mapping[str, Path], network: Path) -> bool:
    """Each named file to its place, and the manifest beside the network; whether any changed."""
    if _stands(made / MANIFEST, network / MANIFEST):
        return False
    # The manifest goes last: where it stands, the files it describes stand too.
    (network / MANIFEST).unlink(missing_ok=True)
    for name, place in places.items():
        files.place(made / name, place)
    files.place(made / MANIFEST, network / MANIFEST)
    return True


def made_here(repository: Path) -> Iterator[Path]:
    for pattern in PUT:
        yield from repository.glob(pattern)


def _stands(made: Path, placed: Path) -> bool:
    try:
        return made.read_bytes() == placed.read_bytes()
    except OSError:
        return False
