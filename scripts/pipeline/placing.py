"""Puts what an export made into a repository, where it is not there yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from scripts import files

MANIFEST = "manifest.json"


def put(made: Path, places: Mapping[str, Path], network: Path) -> bool:
    """Each named file to its place, and the manifest beside the network; whether any changed."""
    if _stands(made / MANIFEST, network / MANIFEST):
        return False
    # The manifest goes last: where it stands, the files it describes stand too.
    (network / MANIFEST).unlink(missing_ok=True)
    for name, place in places.items():
        files.place(made / name, place)
    compute_as_exported(network)
    files.place(made / MANIFEST, network / MANIFEST)
    return True


def compute_as_exported(network: Path) -> None:
    """What the CPU engine looks for beside a network. Other precisions are for what was proved."""
    files.write(network / "engine.json", json.dumps({"precision": "fp32"}) + "\n")


def _stands(made: Path, placed: Path) -> bool:
    try:
        return made.read_bytes() == placed.read_bytes()
    except OSError:
        return False
