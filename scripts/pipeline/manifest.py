"""What an ONNX file was made from, and whether it still fits what is wanted. Stdlib only."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from scripts import files
from scripts.errors import UserError

SCHEMA = 1
CONSTRAINTS = Path(__file__).parents[2] / "requirements" / "constraints.txt"
MAKERS = ("torch", "torchvision", "onnx", "onnxscript")


class Identified(Protocol):
    def identity(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Wanted:
    """What the user asks to be exported."""

    arch: str
    weights: str  # "default" (torchvision's own), "random", or a file
    precision: str = "fp32"  # or "fp16": half precision inside, as a strongly typed engine wants it

    @property
    def untrained(self) -> bool:
        return self.weights == "random"

    @property
    def named(self) -> bool:
        """Whether the weights are a word, and no file."""
        return self.weights in ("default", "random")

    def identity(self) -> dict[str, Any]:
        """All that the artefact depends on, told apart without loading any of it."""
        weights: dict[str, str] = {"source": self.weights}
        if not self.named:
            path = Path(self.weights)
            if not path.is_file():
                raise UserError(
                    f"no weights file at {path}",
                    "give WEIGHTS= a .pth or .safetensors file, 'default' or 'random'",
                )
            weights = {"source": path.name, "sha256": files.sha256(path)}
        return self.identity_with(weights)

    def identity_with(self, weights: dict[str, str]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "arch": self.arch,
            "precision": self.precision,
            "weights": weights,
            "versions": pinned(*MAKERS),
        }


def pinned(*names: str) -> dict[str, str]:
    """The versions that requirements/constraints.txt sets."""
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", CONSTRAINTS.read_text(), re.MULTILINE))
    return {name: pins[name] for name in names}


@dataclass(frozen=True)
class Manifest:
    """Beside the artefact: what it was made from, and what came of it."""

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

    def describe(self) -> str:
        said = str(self.identity.get("arch") or self.identity["source"])
        if weights := self.identity.get("weights"):  # a classifier of texts comes with its own
            said += f", weights {weights['source']}"
        return said + (" (untrained)" if self.untrained else "")


def why_export(artefact: Path, wanted: Identified, as_before: bool = False) -> str | None:
    """None when the artefact fits; else what changed, in one line. Of weights that are wanted as
    before, the file may be gone, or on another machine."""
    manifest = Manifest.load(artefact / "manifest.json")
    if manifest is None:
        return "nothing exported yet"
    identity = as_before and isinstance(wanted, Wanted) and _without_file(manifest, wanted)
    changes = differences(manifest.identity, identity or wanted.identity())
    if not changes:
        onnx = artefact / "model.onnx"
        if not onnx.exists():
            changes = ["model.onnx is gone"]
        elif files.sha256(onnx) != manifest.onnx["sha256"]:
            changes = ["model.onnx is not the file that was checked"]
    return "; ".join(changes) or None


def _without_file(manifest: Manifest, wanted: Wanted) -> dict[str, Any] | None:
    """What is wanted, if its weights are a file of the same name that is gone."""
    known = manifest.identity["weights"]
    gone = not wanted.named and not Path(wanted.weights).exists()
    same = known["source"] == Path(wanted.weights).name
    return wanted.identity_with(known) if gone and same else None


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
