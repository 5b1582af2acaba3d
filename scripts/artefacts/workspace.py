"""The folders with the results of one version's steps."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.artefacts.manifest import Manifest

# Trees, as Triton's FIL backend calls the file (its src/model.h).
FOREST = "checkpoint.tl"


@dataclass(frozen=True)
class Workspace:
    folder: Path

    @property
    def onnx(self) -> Path:
        """The result of export; its reference is what all later steps are compared with."""
        return self.folder / "onnx"

    @property
    def pictures(self) -> list[Path]:
        """The files that PyTorch's answers belong to."""
        return sorted((self.onnx / "pictures").glob("*"))

    @property
    def int8(self) -> Path:
        """The result of quantise."""
        return self.folder / "int8"

    @property
    def engine(self) -> Path:
        """The result of the engine step, for a CPU."""
        return self.folder / "engine"

    @property
    def plan(self) -> Path:
        """The TensorRT plan, for a GPU."""
        return self.folder / "plan"

    @property
    def forest(self) -> Path | None:
        """Trees of a model of tables, which a GPU runs as they are, without a plan."""
        found = self.onnx / FOREST
        return found if found.exists() else None

    @property
    def manifest(self) -> Manifest:
        return Manifest.of_export(self.onnx)

    @property
    def decision(self) -> dict[str, Any]:
        """The precision on a CPU, with the result of its check."""
        decision: dict[str, Any] = json.loads((self.engine / "engine.json").read_text())
        return decision

    @property
    def cpu_network(self) -> Path:
        """The network that a CPU runs."""
        return self.network_of(self.decision["precision"])

    def network_of(self, precision: str) -> Path:
        """One that came in 8 bits is not quantised again."""
        return self.int8 if precision == "int8" and not self.manifest.eight_bits else self.onnx
