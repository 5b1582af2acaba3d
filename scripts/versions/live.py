"""The version folders in the repository that Triton reads: those of the version that serves, and
during a switch those of two."""

from __future__ import annotations

import py_compile
import shutil
from pathlib import Path

from scripts import files
from scripts.errors import UserError
from scripts.pipeline.repository import COMMITTED, FIRST, PROGRAMS, version_numbers
from scripts.versions.archive import Version

REPOSITORY = COMMITTED


def place(version: Version) -> None:
    """Beside what is there. Nothing looks at it until it is asked for."""
    for model, number in version.models.items():
        for source in sorted(version.member(model).iterdir()):
            target = REPOSITORY / model / str(number) / source.name
            if target.exists() and files.sha256(target) == version.hashes[model][source.name]:
                continue
            if _committed(model, number, target):
                raise UserError(
                    f"{target.relative_to(REPOSITORY.parent)} has changed since "
                    f"version {version.number} was made",
                    "take the change back, or make a new version of it: make publish",
                )
            files.place(source, target)
            if target.suffix == ".py":  # else Python does it at the load, and Triton sees a change
                py_compile.compile(str(target), doraise=False, quiet=2)
    files.let_all_read(REPOSITORY)


def leave_only(version: Version) -> None:
    """All other versions go; what the project comes with stays, below any later version."""
    for model, number in version.models.items():
        for other in version_numbers(REPOSITORY, model):
            if other != number and not (model in PROGRAMS and other == FIRST):
                shutil.rmtree(REPOSITORY / model / str(other))


def _committed(model: str, number: int, target: Path) -> bool:
    return PROGRAMS.get(model) == target.name and number == FIRST and target.exists()
