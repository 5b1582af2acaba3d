"""Every version that was made, each in a folder of its own under build/versions, never changed.

onnx/ int8/ engine/ plan/    what the steps made
models/NAME/                 the version folders of the pipeline's members
version.json                 what they are, and with which settings they were made
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from scripts import files
from scripts.bootstrap import ROOT
from scripts.errors import UserError
from scripts.pipeline.repository import CPU, GPU, Contents, precision_of
from scripts.pipeline.workspace import Workspace

HERE = ROOT / "build" / "versions"
DRAFT = HERE / ".draft"

# The settings that decide what a version is.
DECIDING = (
    "ARCH",
    "WEIGHTS",
    "PRECISION",
    "DECODE",
    "MAX_MEGAPIXELS",
    "PREPROCESS",
    "OPT_BATCH",
)

Hashes = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Version:
    number: int
    made: str
    settings: dict[str, str]
    models: dict[str, int]  # the members, each with the number of its own version folder
    hashes: dict[str, dict[str, str]]  # of each member's files

    @property
    def folder(self) -> Path:
        return HERE / str(self.number)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.folder)

    def member(self, model: str) -> Path:
        return self.folder / "models" / model

    def sound(self) -> bool:
        """Whether its files are still those that it was made with."""
        return hashes_of(self.folder / "models") == self.hashes

    @property
    def precision(self) -> str:
        return precision_of(self.workspace, GPU if GPU.model in self.models else CPU)

    def describe(self) -> str:
        return f"version {self.number}: {self.what}"

    @property
    def what(self) -> str:
        return f"{self.workspace.manifest.describe()}, {self.precision}"


def numbers() -> list[int]:
    return sorted(int(path.name) for path in HERE.glob("[0-9]*") if path.name.isdecimal())


def load(number: int) -> Version:
    record = HERE / str(number) / "version.json"
    try:
        return Version(**json.loads(record.read_text()))
    except (OSError, ValueError, TypeError):
        have = ", ".join(map(str, numbers())) or "none"
        raise UserError(
            f"there is no version {number} (there: {have})", "see them: make history"
        ) from None


@contextmanager
def draft(seed: Version | None) -> Iterator[Workspace]:
    """A place to make a version in, with all that an earlier one may lend it."""
    shutil.rmtree(DRAFT, ignore_errors=True)  # of a make that was killed
    if seed:
        files.link_tree(seed.folder, DRAFT)
        shutil.rmtree(DRAFT / "models", ignore_errors=True)
    DRAFT.mkdir(parents=True, exist_ok=True)
    try:
        yield Workspace(DRAFT)
    finally:
        shutil.rmtree(DRAFT, ignore_errors=True)


def keep(contents: Contents, settings: Mapping[str, str], seed: Version | None) -> Version:
    """The draft as the next version; an earlier one where it came out the same."""
    for model, content in contents.items():
        for name, source in content.items():
            target = DRAFT / "models" / model / name
            if isinstance(source, Path):
                files.place(source, target)
            else:
                files.write(target, source)
    hashes = hashes_of(DRAFT / "models", seed)
    if seed and hashes == seed.hashes:
        return seed
    for number in reversed(numbers()):
        if (same := load(number)).hashes == hashes and same.sound():
            return same
    number = max(numbers(), default=0) + 1
    version = Version(
        number=number,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        settings={name: settings[name] for name in DECIDING},
        models={model: _number(model, of, number) for model, of in hashes.items()},
        hashes=hashes,
    )
    files.write(DRAFT / "version.json", json.dumps(asdict(version), indent=2) + "\n")
    files.let_all_read(DRAFT)
    DRAFT.rename(version.folder)
    return version


def hashes_of(models: Path, known: Version | None = None) -> dict[str, dict[str, str]]:
    """Of every file of every member; what is the very file of a known version is not read again."""
    hashes: dict[str, dict[str, str]] = {}
    for path in sorted(models.glob("*/*")):
        model, name = path.parent.name, path.name
        said = known.hashes.get(model, {}).get(name) if known else None
        if known and said:
            same = known.member(model) / name
            if same.exists() and same.samefile(path):
                hashes.setdefault(model, {})[name] = said
                continue
        hashes.setdefault(model, {})[name] = files.sha256(path)
    return hashes


def _number(model: str, hashes: Mapping[str, str], new: int) -> int:
    """A member that is as it was in some version keeps the number that it had there."""
    for number in reversed(numbers()):
        version = load(number)
        if version.hashes.get(model) == hashes:
            return version.models[model]
    return new
