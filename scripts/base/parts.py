"""What kinds of pipelines and extensions bring, found by its name.

parts.find("adoption")     the modules kinds/*/adoption.py and extensions/*/adoption.py
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.base.paths import EXTENSIONS, KINDS, ROOT


@cache
def find(name: str) -> tuple[Any, ...]:
    return find_in(KINDS, name) + find_in(EXTENSIONS, name)


def find_in(home: Path, name: str) -> tuple[Any, ...]:
    paths = (path.relative_to(ROOT) for path in sorted(home.glob(f"*/{name}.py")))
    return tuple(import_module(".".join(path.with_suffix("").parts)) for path in paths)
