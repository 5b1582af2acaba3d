"""What each version's answers are compared with: its first ones, in a file of the door's that
outlives it."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bundle_door.served import MANIFEST
from bundle_serving.log_lines import log

NAME = "references.json"
LABELS = "labels.txt"
# Of the versions, the newest ones.
MOST_KEPT = 100


class Reference(msgspec.Struct):
    taken: int
    classes: dict[int, int]
    confidence: dict[int, int]  # by the histogram's buckets
    network: str = ""


class References:
    """By model and version. The repository, if it is a folder here, tells one network from another
    under the same number, and the classes' names."""

    def __init__(self, folder: Path | None = None, repository: Path | None = None) -> None:
        self._file = folder / NAME if folder else None
        self._repository = repository
        self._kept: dict[str, Reference] = {}
        if self._file:
            with suppress(OSError, msgspec.MsgspecError):
                self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Reference])

    def of(self, model: str, version: str) -> Reference | None:
        found = self._kept.get(f"{model}/{version}")
        return found if found and found.network == self._network(model, version) else None

    def keep(self, model: str, version: str, reference: Reference) -> None:
        reference.network = self._network(model, version)
        self._kept[f"{model}/{version}"] = reference
        newest = sorted(self._kept.items(), key=lambda item: item[1].taken)[-MOST_KEPT:]
        self._kept = dict(newest)
        if not self._file:
            return
        draft = self._file.with_suffix(".new")
        try:
            draft.write_bytes(msgspec.json.encode(self._kept))
            draft.replace(self._file)
        except OSError as fault:
            log("door", f"the reference of {model} {version} ends with this process: {fault}")

    def labels(self, model: str) -> list[str]:
        try:
            return self._read(model, LABELS).decode().splitlines()
        except (OSError, ValueError):
            return []

    def _network(self, model: str, version: str) -> str:
        try:
            manifest: Any = json.loads(self._read(model, version, MANIFEST))
        except (OSError, ValueError):
            return ""
        described = json.dumps(manifest.get("identity"), sort_keys=True)
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    def _read(self, *parts: str) -> bytes:
        if self._repository is None:
            raise FileNotFoundError
        return self._repository.joinpath(*parts).read_bytes()
