"""What the project's kinds of pipelines bring besides their recipes, found by its name.

kind_parts.find("adoption")     the modules kinds/*/adoption.py
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from scripts.base.paths import KINDS


@cache
def find(name: str) -> tuple[Any, ...]:
    paths = sorted(KINDS.glob(f"*/{name}.py"))
    return tuple(import_module(f"kinds.{path.parent.name}.{name}") for path in paths)
