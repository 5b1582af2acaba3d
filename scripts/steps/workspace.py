"""The folders that the steps of one version leave what they made in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.base.errors import UserError
from scripts.steps.manifest import Manifest


@dataclass(frozen=True)
class Workspace:
    folder: Path

    @property
    def onnx(self) -> Path:
        """What export made; its reference is what all that follows is judged by."""
        return self.folder / "onnx"

    @property
    def pictures(self) -> list[Path]:
        """The files that PyTorch was asked about."""
        return sorted((self.onnx / "pictures").glob("*"))

    @property
    def int8(self) -> Path:
        """What quantise made of it."""
        return self.folder / "int8"

    @property
    def engine(self) -> Path:
        """What was proved for a CPU."""
        return self.folder / "engine"

    @property
    def plan(self) -> Path:
        """What trtexec built for a GPU."""
        return self.folder / "plan"

    @property
    def manifest(self) -> Manifest:
        manifest = Manifest.load(self.onnx / "manifest.json")
        if manifest is None:
            raise UserError(f"{self.onnx} has no exported network", "export one: make up")
        return manifest

    @property
    def decision(self) -> dict[str, Any]:
        """How a CPU runs the network, and what proved it."""
        decision: dict[str, Any] = json.loads((self.engine / "engine.json").read_text())
        return decision

    @property
    def eight_bits(self) -> bool:
        """Whether a CPU runs the quantised network."""
        return bool(self.decision["precision"] == "int8")
