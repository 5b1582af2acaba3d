"""Stops everything that this project serves, and says what stays."""

from scripts.base import console, disk, parts
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import archive
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state


def stop_server() -> None:
    state.forget_damaged()
    known = state.load()
    if known:
        stacks = [flavour.stack_of(known)]
    else:  # without a record, any flavour may have left something
        stacks = [flavour.stack(name, Settings.load()) for name in flavour.possible()]
    with console.waiting("stopping the server"):
        beside = [each.stop(known) for each in parts.find("beside")]
        stopped = [stack.flavour for stack in stacks if stack.stop()]
    console.note(f"{' and '.join(stopped)} server stopped" if stopped else "no server was running")
    for each in filter(None, beside):
        console.note(each)


def describe_kept() -> str:
    versions = sum(len(archive.numbers(pipeline)) for pipeline in pipelines.every())
    count = f"{versions} version{'s' * (versions != 1)}"
    size = disk.readable(disk.measure_occupied([ROOT / "build"]))
    return f"kept: build/ with {count}, keys and caches ({size}); make prune shows them"
