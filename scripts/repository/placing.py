"""Puts what an export made into a repository, where it is not there yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from scripts.base import files
from scripts.recipes.image import ON_CPU, ON_GPU
from scripts.recipes.pbtxt import LABELS

MANIFEST = "manifest.json"

# What of it goes into the network's folder, under which name.
PARTS = {
    ON_CPU: {"model.onnx": "model.onnx", MANIFEST: MANIFEST},
    ON_GPU: {
        "plan/model.plan": "model.plan",
        "plan/manifest.json": "plan.json",
        MANIFEST: MANIFEST,
    },
}


def put(made: Path, network: Path, engine: str, others: Mapping[Path, str]) -> bool:
    """The network to its folder, beside the names of its classes, and to each other place the file
    that belongs there; whether any changed."""
    if (made / LABELS).exists():
        others = {network.parent / LABELS: LABELS, **others}
    if stands(made, network, engine) and all(place.exists() for place in others):
        return False
    # The manifest goes last: where it stands, the files it describes stand too.
    (network / MANIFEST).unlink(missing_ok=True)
    if engine == ON_CPU:
        compute_as_exported(network)
    parts = {network / to: name for name, to in PARTS[engine].items()}
    for place, name in (dict(others) | parts).items():
        files.place(made / name, place)
    return True


def stands(made: Path, network: Path, engine: str) -> bool:
    """By the manifests, which name the hashes of what they describe."""
    parts = {made / name: network / to for name, to in PARTS[engine].items()}
    return all(_same(part, to) for part, to in parts.items() if part.name == MANIFEST)


def compute_as_exported(network: Path) -> None:
    """What the CPU engine looks for beside a network. Other precisions are for what was proved."""
    files.write(network / "engine.json", json.dumps({"precision": "fp32"}) + "\n")


def _same(made: Path, placed: Path) -> bool:
    try:
        return made.read_bytes() == placed.read_bytes()
    except OSError:
        return False
