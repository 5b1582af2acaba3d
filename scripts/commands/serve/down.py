"""Stops the server; exports are kept for the next start.

make down
"""

from scripts.base import console, disk, lock
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import archive
from scripts.stacks import flavour


def main() -> None:
    with lock.one_at_a_time():
        flavour.stop_server()
        versions = sum(len(archive.numbers(pipeline)) for pipeline in pipelines.every())
        count = f"{versions} version{'s' * (versions != 1)}"
        size = disk.readable(disk.measure_occupied([ROOT / "build"]))
        console.note(f"kept: build/ with {count}, keys and caches ({size}); make prune shows them")
