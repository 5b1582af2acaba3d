"""What such a detector is made from, and what its folder says. Reads JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.artefacts.manifest import MAKERS, NOTHING, of_samples, read_pins
from scripts.base import files
from scripts.base.errors import UserError
from scripts.intake import metadata

SIDE = "say the side of the square that the network sees: SIZE=640"


@dataclass(frozen=True)
class Detr:
    folder: Path
    side: int  # of the square that a picture is squashed into
    threshold: float  # a box with a score above it counts
    samples: Path | None = None  # photos for the check

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        return {
            "source": self.folder.name,
            "files": self._files(before),
            "side": self.side,
            "threshold": self.threshold,
            "precision": "fp32",
            "versions": read_pins(*MAKERS, "transformers"),
            **of_samples(self.samples),
        }

    def _files(self, before: Mapping[str, Any]) -> Mapping[str, str]:
        if self.folder.is_dir():
            parts = sorted(path for path in self.folder.iterdir() if path.is_file())
            return {path.name: files.sha256(path) for path in parts}
        if before.get("source") == self.folder.name:
            earlier: Mapping[str, str] = before["files"]
            return earlier
        raise UserError(
            f"there is no folder {self.folder}", "name one with a detector of Hugging Face"
        )


def is_detector(folder: Path) -> bool:
    return metadata.of_a_detector(files.read_json(folder / "config.json"))


def side_of(folder: Path) -> int:
    """Of the square that pictures are squashed into: of one that the folder names, or the short
    side."""
    path = folder / "preprocessor_config.json"
    size = files.read_json(path).get("size")
    if isinstance(size, dict):
        sides = {size.get("height"), size.get("width"), size.get("shortest_edge")} - {None}
        if len(sides) == 1 and isinstance(side := sides.pop(), int) and side > 0:
            return side
    raise UserError(f"{path} does not name a size with one side", SIDE)
