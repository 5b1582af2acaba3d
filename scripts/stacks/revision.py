"""What the images are built from, and the last commit that changed it."""

from __future__ import annotations

import subprocess
from functools import cache

from scripts.base.paths import ROOT

SOURCES = (
    "docker",
    "requirements",
    "serving",
    ":(glob)kinds/*/serving/**",
    ":(glob)extensions/*/serving/**",
    "client",
    "scripts/base",
)


@cache
def find_revision() -> str:
    """So that other commits restart nothing; empty if this checkout has no history, or changes that
    are in no commit."""
    git = ["git", "-C", str(ROOT)]
    try:
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", *SOURCES], capture_output=True, text=True
        )
        last = subprocess.run(
            [*git, "log", "-1", "--format=%H", "--", *SOURCES], capture_output=True, text=True
        )
    except OSError:
        return ""
    return "" if changed.returncode or changed.stdout else last.stdout.strip()
