"""Stops everything that this project serves."""

from __future__ import annotations

from scripts.base import console, parts
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state


def stop_server() -> None:
    state.forget_damaged()
    known = state.load()
    if known:
        stacks = [flavour.stack(known.flavour, known.settings_at_start)]
    else:  # without a record, any flavour may have left something
        stacks = [flavour.stack(name, Settings.load()) for name in flavour.possible()]
    with console.waiting("stopping the server"):
        beside = [each.stop(known) for each in parts.find("beside")]
        stopped = [stack.flavour for stack in stacks if stack.stop()]
    console.note(f"{' and '.join(stopped)} server stopped" if stopped else "no server was running")
    for each in filter(None, beside):
        console.note(each)
