"""Runs one of the make commands: python -m scripts.commands up"""

from __future__ import annotations

import sys
from importlib import import_module

from scripts.base.errors import run_guarded
from scripts.base.shared import share
from scripts.repository import layout_number
from scripts.settings.known import require_known

# What does not read versions.
ANYWAY = ("clean", "doctor", "down", "keys", "logs", "restore")


def check(command: str) -> int:
    share()
    if command != "upgrade":  # which renames settings
        require_known()
    if command not in ANYWAY:
        layout_number.require_known(layout_number.here())
    return 0


def run(command: str) -> int:
    # What is wrong is refused before the import, which takes some commands seconds.
    checked = run_guarded(lambda: check(command))
    module = command if "." in command else f"scripts.commands.{command}"  # dotted: a kind's
    return checked or run_guarded(lambda: int(import_module(module).main()))


if __name__ == "__main__":
    sys.exit(run(sys.argv.pop(1)))
