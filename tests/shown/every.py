"""Every rendering, and why a command has none: of tests/shown, kinds/*/tests/shown.py and
extensions/*/tests/shown.py.

SHOWN: by command, what writes what it shows of data that are the same each time
NOTES_ALONE: what a command says that writes nothing but notes
ELSEWHERE: why another one needs none
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from tests.project import find_brought

OWN = ("asking", "measuring", "operating", "versions")


@cache
def find_modules() -> list[ModuleType]:
    brought = (".".join(path.parts[-4:-1]) for path in find_brought("*/tests/shown.py"))
    names = [*(f"tests.shown.{name}" for name in OWN), *(f"{home}.shown" for home in brought)]
    return list(map(import_module, names))


def find_shown() -> dict[str, Callable[[], None]]:
    """Some more than once: "status: of a swarm"."""
    return _gather("SHOWN")


def find_reasons(kind: str) -> dict[str, str]:
    return _gather(kind)


def _gather(kind: str) -> dict[str, Any]:
    found = (getattr(module, kind, {}) for module in find_modules())
    return {name: each for of_one in found for name, each in of_one.items()}
