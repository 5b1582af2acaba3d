"""Runs one of the make commands: python -m scripts.commands up"""

from __future__ import annotations

import sys
from importlib import import_module

from scripts.base.errors import guarded
from scripts.settings.known import require_known


def check() -> int:
    require_known()
    return 0


if __name__ == "__main__":
    # A wrong setting is refused before the import, which takes some commands seconds.
    sys.exit(guarded(check) or guarded(import_module(f"scripts.commands.{sys.argv.pop(1)}").main))
