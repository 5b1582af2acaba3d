"""What stays on this machine when the server stops."""

from __future__ import annotations

from scripts.base import disk
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import archive


def summary() -> str:
    versions = sum(len(archive.numbers(pipeline)) for pipeline in pipelines.every())
    count = f"{versions} version{'s' * (versions != 1)}"
    size = disk.readable(disk.measure_occupied([ROOT / "build"]))
    return f"kept: build/ with {count}, keys and caches ({size}); make prune shows them"
