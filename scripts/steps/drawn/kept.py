"""Where the trained network is kept, and its training by another process. Imports no PyTorch."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.base.errors import AlreadyReported
from scripts.base.interrupts import HELD_BACK
from scripts.base.paths import ROOT


def path() -> Path:
    hasher = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        hasher.update(source.read_bytes())
    return ROOT / "build" / "cache" / f"drawn-{hasher.hexdigest()[:8]}.safetensors"


def train_while(imports: Callable[[], object]) -> None:
    """Training takes one core: on the other, the caller imports what it needs next, which takes a
    third of that time where nothing is compiled yet."""
    if path().exists():
        return
    command = [*HELD_BACK, sys.executable, "-m", "scripts.steps.drawn.training"]
    training = subprocess.Popen(command)
    try:
        imports()
    finally:
        code = training.wait()
    if code:
        raise AlreadyReported(code)
