"""What `make doctor` found: one line each, with the fix."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

OK, WARNING, FAILURE = "[green]ok[/]", "[yellow]note[/]", "[red]fail[/]"


@dataclass(frozen=True)
class Finding:
    what: str
    verdict: str
    detail: str
    fix: str = ""


def room(what: str, folder: Path, needed_gb: int, made: bool) -> Finding:
    """Whether a disk has room, which takes less if everything large is made already."""
    free = shutil.disk_usage(folder).free / 1e9
    good = free >= (1 if made else needed_gb)
    fix = "" if good else f"make room: a first run takes up to {needed_gb} GB"
    return Finding(what, OK if good else FAILURE, f"{free:.0f} GB free in {folder}", fix)
