"""Key files on this machine's disk, readable by their owner and by the containers that get them."""

from __future__ import annotations

from pathlib import Path

from scripts.base import files
from scripts.base.paths import ROOT

FOLDER = ROOT / "build" / "run" / "s3"

# For the server of make s3-up.
OPERATOR = FOLDER / "operator.credentials"
SERVER = FOLDER / "server.credentials"

# For the running Triton server.
HANDED = FOLDER / "handed.credentials"


def write(path: Path, content: str) -> None:
    """Others cannot enter the folder but could read the file: a container mounts the file alone and
    reads it as another user."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.chmod(0o700)
    files.write(path, content, 0o444)
