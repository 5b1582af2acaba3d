"""The layers of the Python environment. A layer is a file in requirements/, or in the requirements/
of the part that alone needs it; where several have a file of its name, as check.txt, it is all of
them. Stdlib only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from scripts.base import wheels
from scripts.base.errors import UserError
from scripts.base.paths import REQUIREMENTS, ROOT

HOMES = ("", "benchmark/", "kinds/*/", "extensions/*/")
CONSTRAINTS = REQUIREMENTS / "constraints.txt"


def list_folders(root: Path = ROOT) -> list[Path]:
    return [each for home in HOMES for each in sorted(root.glob(f"{home}requirements"))]


def list_files() -> list[Path]:
    """Of all layers."""
    found = (file for folder in list_folders() for file in sorted(folder.glob("*.txt")))
    return [file for file in found if file != CONSTRAINTS]


def list_resolved() -> list[Path]:
    """Without those that are apart."""
    return [file for file in list_files() if not is_apart(file.stem)]


def find_files(layer: str) -> list[Path]:
    found = [file for file in list_files() if file.stem == layer]
    if not found:
        raise UserError(f"no requirements/ has {layer}.txt", "name a layer that there is")
    return found


def find_included(layer: str) -> Iterator[str]:
    """The layer itself and those that its files include with -r."""
    yield layer
    for file in find_files(layer):
        for name in re.findall(r"^-r (?:\S+/)?(\w+)\.txt", file.read_text(), re.MULTILINE):
            yield from find_included(name)


def is_apart(layer: str) -> bool:
    """Whether it lies outside the environment, in a folder of its own: for a program or a model
    that comes inside a package. Its file carries versions and hashes itself."""
    return any("--hash=" in file.read_text() for file in find_files(layer))


def read_locked(*layers: str) -> list[str]:
    """All that they bring along: name==version, and where that is for."""
    # The list of a file has what those bring along that it includes.
    files = {find_files(layer)[0] for layer in layers}
    files.update(*(find_files(name)[1:] for layer in layers for name in find_included(layer)))
    lines = {line for file in files for line in wheels.read_locked(file.parent, file.stem)}
    # What one of them needs on some Pythons, another may need on all.
    return sorted(line for line in lines if {line, line.partition(" ; ")[0]} & lines == {line})
