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


def train_while(prepare: Callable[[], object]) -> None:
    """Training takes one core. On the other, the pictures are drawn while it imports PyTorch; then
    the caller prepares what it does next."""
    if path().exists():
        return
    python = [*HELD_BACK, sys.executable, "-m"]
    drawing = subprocess.Popen([*python, "scripts.steps.drawn.drawings"], stdout=subprocess.PIPE)
    training = subprocess.Popen(
        [*python, "scripts.steps.drawn.training", "--piped"], stdin=drawing.stdout
    )
    assert drawing.stdout
    drawing.stdout.close()  # the training alone holds it now
    try:
        prepare()
    finally:
        code = training.wait()
        drawing.wait()
    if code:
        raise AlreadyReported(code)
