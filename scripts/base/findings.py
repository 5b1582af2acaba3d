"""What `make doctor` found: one line each, with the fix."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OK, WARNING, FAILURE = "[green]ok[/]", "[yellow]note[/]", "[red]fail[/]"


@dataclass(frozen=True)
class Finding:
    what: str
    verdict: str
    detail: str
    fix: str = ""


def judge(what: str, good: bool, detail: str, fix: str, otherwise: str = FAILURE) -> Finding:
    return Finding(what, OK if good else otherwise, detail, "" if good else fix)


def room(what: str, folder: Path, needed_gb: int, made: bool) -> Finding:
    """Whether a disk has room, which takes less if everything large is made already."""
    free = shutil.disk_usage(folder).free / 1e9
    fix = f"make room: a first run takes up to {needed_gb} GB"
    good = free >= (1 if made else needed_gb)
    return judge(what, good, f"{free:.0f} GB free in {folder}", fix)


def disks(
    checkout: Path, build: Path, needed_gb: int, installed: bool, made: bool
) -> Iterator[Finding]:
    """Of a checkout, and of the folder of what is built, which may be another disk's."""
    # What commands need later is installed in the last one, which may have all of it.
    verdicts = {checkout: FAILURE, build: FAILURE, checkout / ".venv": WARNING}
    for folder, verdict in verdicts.items():
        if folder.exists() and not os.access(folder, os.W_OK):
            fix = "as the user who owns it, or in a copy on a disk that can be written to"
            yield Finding("checkout", verdict, f"{folder} cannot be written to", fix)
    apart = build.exists() and build.stat().st_dev != checkout.stat().st_dev
    yield room("disk", checkout, needed_gb, installed and (made or apart))
    if apart:
        yield room("build's disk", build, 1, made)
