"""Runs one of the make commands: python -m scripts.commands serve.up

--any-layout: it does not read versions; --any-settings: it renames those of earlier bundles.
"""

import os
import re
import sys
from importlib import import_module
from types import ModuleType

from scripts.base import console, files, parts
from scripts.base.errors import run_guarded
from scripts.repository import layout_number

ANY_LAYOUT, ANY_SETTINGS = "--any-layout", "--any-settings"


def check(options: set[str]) -> None:
    # Those of the user's own kinds of pipelines may be wrong.
    from scripts.settings import arguments

    files.share()
    arguments.drop_name_of_wsl()
    if ANY_SETTINGS not in options:
        arguments.require_known()
    if (python := os.environ.get("PYTHON")) and "PYTHON" in arguments.list_typed():
        from scripts import bootstrap

        bootstrap.require_chosen(python)
    if ANY_LAYOUT not in options:
        layout_number.require_known(layout_number.here())
    console.Form.is_json = arguments.load().json


def run(options: set[str], command: str) -> int:
    # What is wrong is refused before the import, which takes some commands seconds.
    checked = run_guarded(lambda: check(options))
    return checked or run_guarded(lambda: call(import_module(parts.name_command(command))))


def call(command: ModuleType) -> int:
    from scripts.settings import arguments

    # What make runs before a command, such as can_measure, shows no call.
    if re.search("^ *make ", described := command.__doc__ or "", re.MULTILINE):
        for name in arguments.list_idle(described, arguments.list_typed()):
            console.note(
                f"{name}= changes nothing here: omit it; docs/commands.md says what takes it"
            )
    with parts.name_faults():
        return int(command.main() or 0)


if __name__ == "__main__":
    given = {sys.argv.pop(1) for each in sys.argv[1:3] if each in (ANY_LAYOUT, ANY_SETTINGS)}
    sys.exit(run(given, sys.argv.pop(1)))
