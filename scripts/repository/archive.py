"""Every version, each in its own folder, never changed: those of resnet50 in build/versions, those
of another pipeline in build/versions/NAME.

onnx/ int8/ engine/ plan/    the results of the steps
models/NAME/                 the version folders of the pipeline's members
version.json                 what they are and with which settings they were built
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bundle_serving.networks import IR, ONNX
from scripts.artefacts.workspace import FOREST, Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes.layout import CPU, GPU, Engine, in_one_step, precision_of
from scripts.recipes.pipelines import Pipeline

if TYPE_CHECKING:
    from scripts.recipes.recipe import Contents

HERE = ROOT / "build" / "versions"

RECORD = "version.json"
PROGRAMS = "programs alone"  # what a pipeline without a network consists of


@dataclass(frozen=True)
class Version:
    pipeline: Pipeline
    number: int
    made: str
    settings: dict[str, str]
    models: dict[str, int]  # each member -> the number of its version folder
    hashes: dict[str, dict[str, str]]  # of each member's files
    # How right it was on labelled data, the last time: scripts/repository/evaluations.py.
    evaluated: dict[str, Any] | None = None

    @property
    def folder(self) -> Path:
        return home(self.pipeline) / str(self.number)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.folder)

    def member(self, model: str) -> Path:
        return self.folder / "models" / model

    def require_names(self) -> None:
        """Raises ValueError where its record, which may come from elsewhere, names other places
        than the version folders of models."""
        if self.models.keys() != self.hashes.keys() or any("/" in model for model in self.models):
            raise ValueError("it names something else than models")
        if not all(type(number) is int and number > 0 for number in self.models.values()):
            raise ValueError("its models' versions are no numbers")
        named = (f"{model}/{name}" for model, has in self.hashes.items() for name in (*has, RECORD))
        if why := files.why_not_below(self.folder / "models", *named):
            raise ValueError(why)

    def sound(self) -> bool:
        """Whether its files are still intact."""
        return hashes_of(self.folder / "models") == self.hashes

    @property
    def engine(self) -> Engine:
        on_gpu = any({GPU.file, FOREST} & {*member} for member in self.hashes.values())
        return GPU if on_gpu else CPU

    @property
    def precision(self) -> str:
        return precision_of(self.workspace, self.engine)

    @property
    def one_step(self) -> bool:
        return in_one_step(self.own_settings["STEPS"], self.engine)

    @property
    def own_settings(self) -> dict[str, str]:
        """Its settings. Versions of earlier releases may say nothing of STEPS: they have three."""
        return {"STEPS": "3"} | self.settings

    @property
    def members(self) -> list[str]:
        """The members that its ensemble needs: in one step, the network."""
        networks = [model for model, has in self.hashes.items() if {ONNX, IR} & {*has}]
        return networks if self.one_step else [*self.models]

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.pipeline.mark} version {self.number}".strip()

    def describe(self) -> str:
        return f"{self.title}: {self.what}"

    @property
    def served_as(self) -> str:
        """The name in the API, which is the same for every network, and the network behind it."""
        return f"{self.pipeline.ensemble}, serving {self.network}"

    @property
    def network(self) -> str:
        has_network = self.workspace.onnx.is_dir()
        return self.workspace.manifest.network if has_network else PROGRAMS

    @property
    def record(self) -> dict[str, object]:
        """The content of version.json; the folder says which pipeline it belongs to."""
        stored = vars(self).items()
        return {name: value for name, value in stored if name != "pipeline" and value is not None}

    @property
    def what(self) -> str:
        if not self.workspace.onnx.is_dir():
            return PROGRAMS
        return f"{self.workspace.manifest.describe()}, {self.precision}"


def home(pipeline: Pipeline) -> Path:
    return HERE / pipeline.folder


def numbers(pipeline: Pipeline) -> list[int]:
    found = home(pipeline).glob("[0-9]*")
    return sorted(int(path.name) for path in found if path.name.isdecimal())


def load(pipeline: Pipeline, number: int) -> Version:
    if number not in (have := numbers(pipeline)):
        shown = ", ".join(map(str, have)) or "none"
        raise UserError(
            f"there is no version {number} (published: {shown})",
            f"see them: make history{pipeline.option}",
        )
    record = home(pipeline) / str(number) / RECORD
    try:
        version = Version(pipeline, **json.loads(record.read_text()))
        if version.number != number:
            raise ValueError(f"it is of version {version.number!a}")
        version.require_names()
        if not isinstance(version.settings, dict):
            raise ValueError("its settings are none")
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise UserError(
            f"{record} cannot be read ({getattr(fault, 'strerror', fault)})",
            f"restore a backup, or remove {record.parent}: "
            f"make up{pipeline.option} builds the live version anew",
        ) from None
    return version


@contextmanager
def draft(pipeline: Pipeline, seed: Version | None) -> Iterator[Workspace]:
    """A folder to build a version in, with everything that can be reused from an earlier one."""
    folder = home(pipeline) / ".draft"
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed make
    if seed:
        files.link_tree(seed.folder, folder)
        shutil.rmtree(folder / "models", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield Workspace(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(
    draft: Workspace,
    contents: Contents,
    settings: Mapping[str, str],
    pipeline: Pipeline,
    seed: Version | None,
) -> Version:
    """Saves the draft as the next version, or returns an earlier version if that is the same."""
    folder = draft.folder
    for model, content in contents.items():
        for name, source in content.items():
            files.put(source, folder / "models" / model / name)
    hashes = hashes_of(folder / "models", seed)
    if seed and hashes == seed.hashes:
        _mend(seed, folder)
        return seed
    for number in reversed(numbers(pipeline)):
        if (same := load(pipeline, number)).hashes == hashes and same.sound():
            return same
    number = max(numbers(pipeline), default=0) + 1
    version = Version(
        pipeline=pipeline,
        number=number,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        settings={name: settings[name] for name in pipeline.recipe.deciding()},
        models={model: _number(pipeline, model, of, number) for model, of in hashes.items()},
        hashes=hashes,
    )
    _write_record(version, folder)
    files.let_all_read(folder)
    folder.rename(version.folder)
    return version


def note_evaluation(version: Version, found: dict[str, Any]) -> None:
    _write_record(replace(version, evaluated=found), version.folder)


def _write_record(version: Version, folder: Path) -> None:
    files.write(folder / RECORD, json.dumps(version.record, indent=2) + "\n", lasting=True)


def _mend(version: Version, draft: Path) -> None:
    """Restores files that were removed or damaged and have been rebuilt in the draft."""
    for path in draft.rglob("*"):
        kept = version.folder / path.relative_to(draft)
        if path.is_file() and not files.is_same(path, kept):
            files.link(path, kept)


def hashes_of(models: Path, known: Version | None = None) -> dict[str, dict[str, str]]:
    """Hashes of every member's files; a hard link to a known version's file is not read again."""
    hashes: dict[str, dict[str, str]] = {}
    for path in files_of(models):
        model, _, name = str(path.relative_to(models)).partition("/")
        digest = known.hashes.get(model, {}).get(name) if known else None
        if not (known and digest and files.is_same(path, known.member(model) / name)):
            digest = files.sha256(path)
        hashes.setdefault(model, {})[name] = digest
    return hashes


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _number(pipeline: Pipeline, model: str, hashes: Mapping[str, str], new: int) -> int:
    """A member that is unchanged since some version keeps the number it had there."""
    for number in reversed(numbers(pipeline)):
        version = load(pipeline, number)
        if version.hashes.get(model) == hashes:
            return version.models[model]
    return new
