"""What each version's answers are compared with: its first ones, in a file of the door's that
outlives it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from bundle_serving.process.log_lines import log

NAME = "references.json"
LABELS = "labels.txt"
# A reference is of so many answers.
ANSWERS = 1000
# A time beyond it, in seconds, is nonsense.
LATEST = 1 << 36
# Of the versions, the newest ones.
MOST_KEPT = 100


class Reference(msgspec.Struct):
    taken: int
    classes: dict[int, int]
    confidence: dict[int, int]  # by the histogram's buckets
    network: str = ""

    @property
    def whole(self) -> bool:
        counted = self.classes, self.confidence
        return 0 < self.taken < LATEST and all(
            sum(each.values()) == ANSWERS and min(each.values()) > 0 for each in counted
        )


class References:
    """By model and version, if it is this very network: a number may be given to another one. The
    repository, if it is a folder here, tells the classes' names."""

    def __init__(self, folder: Path | None = None, repository: Path | None = None) -> None:
        self._file = folder / NAME if folder else None
        self.repository = repository
        self._kept: dict[str, Reference] = {}
        if self._file:
            with suppress(OSError, msgspec.MsgspecError):
                self._kept = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Reference])

    def find(self, model: str, version: str, network: str) -> Reference | None:
        found = self._kept.get(f"{model}/{version}")
        return found if found and found.network == network and found.whole else None

    def keep(self, model: str, version: str, reference: Reference) -> None:
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
        if self.repository is None:
            return []
        try:
            return (self.repository / model / LABELS).read_text().splitlines()
        except (OSError, ValueError):
            return []
