"""What an ONNX file was exported from, and whether it still fits the settings. Stdlib only."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bundle_serving.networks import files_of, is_ir, network_in
from scripts.artefacts.progress import tell
from scripts.base import files
from scripts.base.errors import NoWeights, UserError

SCHEMA = 1
# More photos say nothing new about the arithmetic, and cost seconds.
MOST_SAMPLES = 32
HASH = re.compile(r"[0-9a-f]{32,}")
CONSTRAINTS = Path(__file__).parents[2] / "requirements" / "constraints.txt"
# Of a version's export: what was expected of its pictures, independent of how they are prepared.
EXPECTED = "expected.npz"
MAKERS = ("torch", "torchvision", "onnx", "onnxscript")


NOTHING: Mapping[str, Any] = {}


class ExportSpec(Protocol):
    """What to export."""

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        """Everything that the artefact depends on, without loading any of it. `before` is an
        earlier identity, used for files that are missing now."""


@dataclass(frozen=True)
class OfTorchvision:
    """One of torchvision's architectures."""

    arch: str
    weights: str  # "default" (torchvision's own), "random", or a file
    precision: str = "fp32"  # or "fp16": half precision inside, for a strongly typed engine
    labels: Path | None = None  # None: torchvision's own
    setting: str = "WEIGHTS"  # that names the weights

    @property
    def is_untrained(self) -> bool:
        return self.weights == "random"

    @property
    def is_file(self) -> bool:
        return self.weights not in ("default", "random")

    @property
    def ways_out(self) -> str:
        """Where the weights cannot be had."""
        other = (
            "a small network that comes with the project (ARCH=drawn)"
            if self.setting == "WEIGHTS"
            else f"it untrained ({self.setting}=random)"
        )
        return f"give a file ({self.setting}={self.arch}.pth or .safetensors), or try {other}"

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        weights = {"source": self.weights}
        if self.is_file:
            weights = of_file(Path(self.weights), before.get("weights"))
            if not weights:
                raise NoWeights(
                    f"there is no weights file at {self.weights}",
                    f"give {self.setting}= a .pth or .safetensors file, {self.setting}=default or "
                    f"{self.setting}=random",
                )
        return {
            "arch": self.arch,
            "precision": self.precision,
            "weights": weights,
            "versions": read_pins(*MAKERS),
            "labels": of_labels(self.labels, before) if self.labels else None,
        }

    def names(
        self, classes: int, published: list[str], first: int = 0, besides: str = ""
    ) -> list[str]:
        """Of a file's classes; `first`: the number of the first of them."""
        named = lines_of(self.labels)
        if not named and classes == len(published):
            weights = Path(self.weights)
            tell(
                f"  no labels: the {classes} classes of {weights.name} are called as torchvision's;"
                f" {weights.with_suffix('.txt').name} beside it names others"
            )
            return published
        if named:
            require_labels(named, classes, self.labels, Path(self.weights).name, besides)
        return named or [f"class {first + number}" for number in range(classes)]


@dataclass(frozen=True)
class Torchvision(OfTorchvision):
    """A classifier."""

    arch: str = "resnet50"
    weights: str = "default"
    samples: Path | None = None  # photos for the check
    pre: Path | None = None  # a program of the user's own that prepares the pictures
    packages: str | None = None  # the folder with those that it imports

    @property
    def scales_input(self) -> bool:
        """Whether it begins with a step that torchvision's trained ones of these have, and those of
        another training lack: no file says which."""
        return self.arch in ("googlenet", "inception_v3") and not self.is_untrained

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        found = super().identity(before) | {"schema": SCHEMA, **of_samples(self.samples)}
        if self.scales_input:
            found["scales_input"] = True
        if self.pre:
            program = of_file(self.pre, before.get("pre"))
            found["pre"] = {**program, "packages": self.packages or ""}
        return found


# The graph around the user's own, and its check.
ADOPTION = 2


@dataclass(frozen=True)
class Foreign:
    """The user's own ONNX file."""

    network: Path
    labels: Path | None  # None: its classes are numbered
    pictures: Mapping[str, Any]  # how they are prepared
    output: str = ""  # which of its outputs is taken, if it has several
    gives: str = ""  # scores, probabilities or multi-label; empty: its numbers tell
    samples: Path | None = None  # photos for the check
    data: tuple[Path, ...] = ()  # its weights, if they are elsewhere than it says

    def identity(self, before: Mapping[str, Any] = NOTHING) -> dict[str, Any]:
        network = of_file(self.network, before)
        if not network:
            raise UserError(f"no network at {self.network}", "name an .onnx or .xml file")
        data = before.get("data", [])
        if self.network.is_file():
            data = [files.sha256(path) for path in self.data or external_data(self.network)]
        return {
            "schema": ADOPTION,
            **network,
            "precision": "fp32",
            "labels": of_labels(self.labels, before) if self.labels else None,
            "pictures": self.pictures,
            "output": self.output,
            "gives": self.gives,
            "data": data,
            "versions": read_pins("onnx", "onnxruntime"),
            **of_samples(self.samples),
        }


# As ONNX stores it: a key and a value, each after its length.
LOCATION = re.compile(rb"\n\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x1f]))")


def external_data(network: Path) -> list[Path]:
    """The files beside a network that it keeps its weights in. What reads it whole is not at hand;
    whether one is missing shows when its weights are read."""
    homes = network, network.resolve()  # of a link, too
    if is_ir(network):
        return [path for each in homes if (path := each.with_suffix(".bin")).is_file()][:1]
    content = network.read_bytes()
    names: dict[str, None] = {}
    for found in LOCATION.finditer(content):
        short, low, high = found.groups()
        length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
        names[content[found.end() : found.end() + length].decode(errors="replace")] = None
    there = {
        name: folder / name
        for folder in (each.parent for each in reversed(homes))
        for name in names
        if not files.why_not_below(folder, name) and (folder / name).is_file()
    }
    return [*there.values()]


def of_samples(folder: Path | None) -> dict[str, str]:
    """Identifies a folder of photos: names and sizes of all, and the content of those that count;
    to read hundreds at each start would be slow."""
    if folder is None:
        return {}
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    hasher = hashlib.sha256()
    for number, path in enumerate(found):
        hasher.update(os.fsencode(f"{path.relative_to(folder)} {path.stat().st_size}\n"))
        if number < MOST_SAMPLES:
            with path.open("rb") as file:  # by parts: there may be a video among them
                for part in iter(partial(file.read, 2**20), b""):
                    hasher.update(part)
    return {"samples": hasher.hexdigest()}


def of_file(path: Path, before: Mapping[str, Any] | None) -> dict[str, str]:
    """Identifies a file; for a missing file, its earlier identity."""
    if path.is_file():
        return {"source": path.name, "sha256": files.sha256(path)}
    if before and before.get("source") == path.name:
        return {name: before[name] for name in ("source", "sha256")}
    return {}


def of_folder(folder: Path, before: Mapping[str, Any]) -> dict[str, str]:
    """Identifies its files; of a missing one, as they were, if it was called so."""
    if folder.is_dir():
        parts = sorted(path for path in folder.iterdir() if path.is_file())
        return {path.name: files.sha256(path) for path in parts}
    is_the_same = before.get("source") in (str(folder), folder.name)
    return dict(before.get("files", {})) if is_the_same else {}


def of_labels(path: Path, before: Mapping[str, Any]) -> dict[str, str]:
    labels = of_file(path, before.get("labels"))
    if not labels:
        raise UserError(f"no labels at {path}", "name a file with one label per line: LABELS=")
    return labels


def labels_beside(weights: str) -> Path | None:
    """street.txt beside street.pth."""
    path = Path(weights).with_suffix(".txt") if Path(weights).name else None
    return path if path and path.is_file() else None


def lines_of(labels: Path | None) -> list[str]:
    """One label per line; empty if the user has no file."""
    if labels is None:
        return []
    try:
        text = labels.read_text(encoding="utf-8-sig")  # of Windows' editors, begins with a mark
        if "\0" in text:  # UTF-16 without a mark reads as UTF-8, and Triton's labels end there
            raise ValueError("it has bytes of value 0, as UTF-16 has")
    except (OSError, ValueError) as fault:
        raise UserError(
            f"cannot read labels at {labels} ({fault})", "name a text in UTF-8: LABELS="
        ) from None
    if not text.strip():
        raise UserError(f"{labels} has no labels", "give one label per line")
    return [line.strip() for line in text.rstrip().splitlines()]


def labels_for(
    labels: list[str], classes: int, source: Path | None, network: str, of_one: bool
) -> list[str]:
    """A label for each class; of one number, what it is of, and its opposite."""
    if not labels:
        return [f"class {each}" for each in range(classes)]
    if of_one and len(labels) == 1 and classes == 2:
        labels = [f"not {labels[0]}", *labels]
    require_labels(labels, classes, source, network)
    return labels


def require_labels(
    labels: list[str], classes: int, file: Path | None, of: str, besides: str = ""
) -> None:
    """As many as its classes."""
    if len(labels) != classes:
        empty = f" (line {labels.index('') + 1} is empty)" if "" in labels else ""
        count = f"{len(labels)} label{'s' * (len(labels) != 1)}{empty}"
        raise UserError(
            f"{file} has {count}, and {of} {classes} classes{besides}",
            "give one label per line, in the order of the training",
        )


def tell_repeated(labels: list[str]) -> None:
    """No fault: ImageNet's own labels have two twice."""
    first: dict[str, int] = {}
    for line, label in enumerate(labels, 1):
        if (earlier := first.setdefault(label, line)) != line:
            tell(
                f"  warning: of the labels, lines {earlier} and {line} are the same: {label};"
                " answers cannot tell these classes apart: give each its own name"
            )
            return


def read_pins(*names: str) -> dict[str, str]:
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

    @classmethod
    def of_export(cls, folder: Path) -> Manifest:
        found = cls.load(folder / "manifest.json")
        if found is None:
            raise UserError(f"{folder} has no exported network", "export one: make up")
        return found

    def dump(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @property
    def eight_bits(self) -> bool:
        """Whether the network came in 8 bits."""
        return bool(self.onnx.get("eight_bits"))

    @property
    def network(self) -> str:
        return str(self.identity.get("arch") or self.identity["source"])

    def describe(self) -> str:
        text = self.network
        if weights := self.identity.get("weights"):  # a text classifier comes with its own
            text += f", weights {weights['source']}"
        return text + (" (untrained)" if self.untrained else "")


def write_manifest(
    draft: Path,
    identity: dict[str, Any],
    onnx: Mapping[str, Any],
    check: dict[str, Any],
    *,
    transform: Mapping[str, Any] = NOTHING,
    labels: Sequence[str] | None = None,
    untrained: bool = False,
) -> Manifest:
    """Beside a network that was exported; and labels.txt, if it has any."""
    if labels is not None:
        (draft / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    known = {"sha256": digest(network_in(draft)), **onnx}
    manifest = Manifest(identity, untrained, dict(transform), known, check)
    (draft / "manifest.json").write_text(manifest.dump())
    return manifest


def why_export(artefact: Path, spec: ExportSpec, as_before: bool = False) -> str | None:
    """None if the artefact fits; otherwise what changed, in one line. If the weights are the same
    as before, their file may be missing, or on another machine."""
    manifest = Manifest.load(artefact / "manifest.json")
    if manifest is None:
        return "nothing made yet"
    identity = spec.identity(manifest.identity if as_before else NOTHING)
    # Without SAMPLES=, those of the last check will do.
    before = {
        name: value
        for name, value in manifest.identity.items()
        if name != "samples" or name in identity
    }
    changes = differences(before, identity)
    if not changes:
        network = network_in(artefact)
        if missing := [path.name for path in files_of(network) if not path.exists()]:
            changes = [f"{missing[0]} is missing"]
        elif digest(network) != manifest.onnx["sha256"]:
            changes = [f"{network.name} is not the file that was checked"]
    return "; ".join(changes) or None


def digest(network: Path) -> str:
    """Of all its files."""
    first, *others = map(files.sha256, files_of(network))
    return hashlib.sha256("".join([first, *others]).encode()).hexdigest() if others else first


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """One that is None counts as empty beside the other's names."""
    if all(each is None or isinstance(each, dict) for each in (old, new)) and (old or new):
        old, new = old or {}, new or {}
        return [
            change
            for key in sorted(old.keys() | new.keys())
            for change in differences(old.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if old == new else [f"{name}: {_short(old)} -> {_short(new)}"]


def _short(value: Any) -> str:
    """Of a hash, or of a program, how it begins."""
    text, more, _ = ("none" if value is None else str(value)).partition("\n")
    return f"{text[:12]}…" if more or HASH.fullmatch(text) else text
