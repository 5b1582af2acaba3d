"""Runs one of the make commands: python -m scripts.commands up"""

from __future__ import annotations

import sys
from importlib import import_module

from scripts.base.errors import guarded
from scripts.settings.known import require_known


def main() -> int:
    require_known()
    code: int = import_module(f"scripts.commands.{sys.argv.pop(1)}").main()
    return code


if __name__ == "__main__":
    sys.exit(guarded(main))
