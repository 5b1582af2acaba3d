"""Keys on this machine's disk: for its owner's eyes, and for containers that are given them."""

from __future__ import annotations

from pathlib import Path

from scripts.base import files
from scripts.base.paths import ROOT

FOLDER = ROOT / "build" / "run" / "s3"

# Of make s3-up's own server.
OPERATOR = FOLDER / "operator.credentials"
SERVER = FOLDER / "server.credentials"

# What the Triton server in use was given.
HANDED = FOLDER / "handed.credentials"


def write(path: Path, content: str) -> None:
    """The folder is closed to others, and the file is not: a container is given the file alone,
    and reads it as another user."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    files.write(path, content, 0o444)
