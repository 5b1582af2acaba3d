"""What an ONNX file was exported from, and whether it still fits the settings. Stdlib only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from scripts.base import files
from scripts.base.errors import UserError

SCHEMA = 1
CONSTRAINTS = Path(__file__).parents[2] / "requirements" / "constraints.txt"
MAKERS = ("torch", "torchvision", "onnx", "onnxscript")


NOTHING: Mapping[str, Any] = {}


class ExportSpec(Protocol):
    """What to export."""

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Everything that the artefact depends on, without loading any of it. `before` is an
        earlier identity, used for files that are missing now."""


@dataclass(frozen=True)
class Torchvision:
    """One of torchvision's architectures."""

    arch: str
    weights: str  # "default" (torchvision's own), "random", or a file
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # None: torchvision's own

    @property
    def untrained(self) -> bool:
        return self.weights == "random"

    @property
    def words(self) -> list[str | Path]:
        """The step's arguments."""
        weights = self.weights if self.named else Path(self.weights)
        return ["--arch", self.arch, "--weights", weights, "--precision", self.precision]

    @property
    def named(self) -> bool:
        """Whether the weights are a keyword, not a file."""
        return self.weights in ("default", "random")

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights: dict[str, str] = {"source": self.weights}
        if not self.named:
            path = Path(self.weights)
            weights = of_file(path, before.get("weights"))
            if not weights:
                raise UserError(
                    f"there is no weights file at {path}",
                    "give WEIGHTS= a .pth or .safetensors file, 'default' or 'random'",
                )
        own_labels = {"labels": of_labels(self.labels, before)} if self.labels else {}
        return {
            "schema": SCHEMA,
            "arch": self.arch,
            "precision": self.precision,
            "weights": weights,
            "versions": pinned(*MAKERS),
            **own_labels,
        }


@dataclass(frozen=True)
class Foreign:
    """The user's own ONNX file."""

    network: Path
    labels: Path | None  # None: its classes are numbered
    pictures: dict[str, Any]  # how they are resized, cropped and normalised

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        network = of_file(self.network, before)
        if not network:
            raise UserError(f"no network at {self.network}", "name an .onnx file")
        return {
            "schema": SCHEMA,
            **network,
            "precision": "fp32",
            "labels": of_labels(self.labels, before) if self.labels else None,
            "pictures": self.pictures,
            "versions": pinned("onnx", "onnxruntime"),
        }


def of_file(path: Path, before: Mapping[str, Any] | None) -> dict[str, str]:
    """Identifies a file; for a missing file, its earlier identity."""
    if path.is_file():
        return {"source": path.name, "sha256": files.sha256(path)}
    if before and before.get("source") == path.name:
        return {name: before[name] for name in ("source", "sha256")}
    return {}


def of_labels(path: Path, before: Mapping[str, Any]) -> dict[str, str]:
    labels = of_file(path, before.get("labels"))
    if not labels:
        raise UserError(f"no labels at {path}", "name a file with one label per line: LABELS=")
    return labels


def lines_of(labels: Path | None) -> list[str]:
    """One label per line; empty if the user has no file."""
    if labels is None:
        return []
    try:
        return labels.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(
            f"cannot read labels at {labels} ({fault})", "name a text file: LABELS="
        ) from None


def pinned(*names: str) -> dict[str, str]:
    """The versions that requirements/constraints.txt sets."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", CONSTRAINTS.read_text(), re.MULTILINE))
    return {name: pins[name] for name in names}


@dataclass(frozen=True)
class Manifest:
    """Stored beside the artefact: what it was exported from, and the result."""

    identity: dict[str, Any]
    untrained: bool
    transform: dict[str, Any]
    onnx: dict[str, Any]
    check: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> Manifest | None:
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @property
    def network(self) -> str:
        return str(self.identity.get("arch") or self.identity["source"])

    def describe(self) -> str:
        said = self.network
        if weights := self.identity.get("weights"):  # a text classifier comes with its own
            said += f", weights {weights['source']}"
        return said + (" (untrained)" if self.untrained else "")


def why_export(artefact: Path, spec: ExportSpec, as_before: bool = False) -> str | None:
    """None if the artefact fits; otherwise what changed, in one line. If the weights are the same
    as before, their file may be missing, or on another machine."""
    manifest = Manifest.load(artefact / "manifest.json")
    if manifest is None:
        return "nothing exported yet"
    identity = spec.identity(manifest.identity if as_before else NOTHING)
    changes = differences(manifest.identity, identity)
    if not changes:
        onnx = artefact / "model.onnx"
        if not onnx.exists():
            changes = ["model.onnx is missing"]
        elif files.sha256(onnx) != manifest.onnx["sha256"]:
            changes = ["model.onnx is not the file that was checked"]
    return "; ".join(changes) or None


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for key in sorted(old.keys() | new.keys())
            for change in differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if old == new else [f"{name}: {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}…"
