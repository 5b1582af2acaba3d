"""Networks without any download: trained in seconds, by another process, on examples that a third
one draws meanwhile. Imports no PyTorch."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import AlreadyReported
from scripts.base.interrupts import HELD_BACK
from scripts.base.paths import ROOT

# Examples, and the label of each.
Drawn = tuple[NDArray[Any], NDArray[np.int64]]


def send(drawn: Drawn) -> None:
    """To the process that trains."""
    examples, labels = drawn
    file = io.BytesIO()
    np.savez(file, examples=examples, labels=labels)
    sys.stdout.buffer.write(file.getvalue())


def received(stream: IO[bytes]) -> Drawn:
    with np.load(io.BytesIO(stream.read())) as file:
        return file["examples"], file["labels"]


@dataclass(frozen=True)
class TrainedHere:
    """By the programs of a folder of scripts/steps: drawings.py and training.py."""

    name: str  # of the folder
    words: tuple[str, ...] = ()  # the arguments of both
    others: tuple[Path, ...] = ()  # programs elsewhere that its result depends on

    @property
    def path(self) -> Path:
        """Where the trained network is kept."""
        hasher = hashlib.sha256("\0".join(self.words).encode())
        here = Path(__file__).parent
        own = sorted((here / self.name).glob("*.py"))
        for source in (*own, here / "teaching.py", *self.others):
            hasher.update(source.read_bytes())
        return ROOT / "build" / "cache" / f"{self.name}-{hasher.hexdigest()[:8]}.safetensors"

    def train_while(self, prepare: Callable[[], object]) -> None:
        """Training takes one core. On the other, the examples are drawn while it imports PyTorch;
        then the caller prepares what it does next."""
        if self.path.exists():
            return
        python, package = [*HELD_BACK, sys.executable, "-m"], f"scripts.steps.{self.name}"
        drawing = subprocess.Popen(
            [*python, f"{package}.drawings", *self.words], stdout=subprocess.PIPE
        )
        training = subprocess.Popen(
            [*python, f"{package}.training", "--piped", *self.words], stdin=drawing.stdout
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
