"""What kinds of pipelines and extensions bring, found by its name.

parts.find("adoption")     the modules kinds/*/adoption.py, own/kinds/*/adoption.py and
                           extensions/*/adoption.py
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import kinds
from scripts.base.errors import UserError
from scripts.base.paths import EXTENSIONS, KINDS

COMMANDS = "scripts.commands"
# Of the pipeline without which there is none: scripts/recipes/image.py.
MAIN_KIND = "image"


@cache
def find(name: str) -> tuple[Any, ...]:
    return find_in(list_homes(), name)


def find_in(homes: Iterable[Path], name: str) -> tuple[Any, ...]:
    return tuple(map(_load, find_files(homes, f"{name}.py")))


def find_files(homes: Iterable[Path], name: str) -> list[Path]:
    return [path for home in homes for path in sorted(home.glob(f"*/{name}"))]


def list_homes() -> list[Path]:
    return [KINDS, find_own_kinds(), EXTENSIONS]


def find_own_kinds() -> Path:
    """Where the user's own kinds of pipelines are."""
    return Path(kinds.__path__[1])


def _load(path: Path) -> Any:
    home, kind = path.parents[1], path.parent.name
    is_known = kind == MAIN_KIND or (KINDS / kind).is_dir()
    if home == find_own_kinds() and is_known:
        raise UserError(f"{path.parent} is called as a kind of the project's", "rename it")
    with name_faults(str(path)):
        return import_module(f"{home.name}.{kind}.{path.stem}")


def name_command(given: str) -> str:
    """The module of a command. Kinds and extensions bring theirs; comparisons are apart."""
    is_apart = given.startswith(("kinds.", "extensions.", "benchmark."))
    return given if is_apart else f"{COMMANDS}.{given}"


@contextmanager
def name_faults(file: str = "") -> Iterator[None]:
    """What is wrong in a file of the user's own kinds is one line; elsewhere it is a fault of the
    project's, of which the whole traceback is wanted."""
    try:
        yield
    except Exception as fault:
        import traceback  # only for faults

        frames = traceback.extract_tb(fault.__traceback__)
        inside = [f"{each.filename}:{each.lineno}" for each in frames if _is_own(each.filename)]
        if isinstance(fault, UserError | BrokenPipeError) or not (inside or _is_own(file)):
            raise
        where = (inside or [file])[-1]
        raise UserError(
            f"{where}: {type(fault).__name__}: {fault}",
            "correct it; docs/own_kind.md says what is read",
        ) from fault


def _is_own(file: str) -> bool:
    return Path(file).is_relative_to(find_own_kinds())
