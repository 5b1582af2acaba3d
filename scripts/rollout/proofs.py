"""What each of several servers must answer before it is asked by anyone: a few requests with
known answers, and what the version answered where they were compared with PyTorch's. A server asks
itself (bundle_serving/protocol/golden.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.base import console, files
from scripts.base.paths import ROOT
from scripts.repository import archive
from scripts.repository.archive import Version

if TYPE_CHECKING:
    from bundle_serving.infer import Answer

FOLDER = ROOT / "build" / "proofs"
# Docker's configs have at most 500 kB.
MOST_BYTES = 400_000


def path(ensemble: str, version: int) -> Path:
    return FOLDER / f"{ensemble}-{version}.npz"


def is_there(version: Version) -> bool:
    """Another one may have had its number: of a pipeline that was removed, or before a restore."""
    file = path(version.pipeline.ensemble, version.number)
    made = (version.folder / "models").stat().st_mtime
    return file.exists() and file.stat().st_mtime >= made


def find_numbers(written: Mapping[str, Path]) -> dict[str, int]:
    """Of the versions that these prove, by ensemble."""
    return {name: int(file.stem.rpartition("-")[2]) for name, file in written.items()}


def list_versions(numbers: Mapping[str, int]) -> str:
    """As a server is told which ones it has."""
    return " ".join(f"{name}={number}" for name, number in sorted(numbers.items()))


def write(version: Version, answers: Sequence[Answer]) -> None:
    """The smallest requests, as many as go in. What a borrowed network answered is proved in its
    own pipeline. Proofs of versions that are gone go, too."""
    from bundle_serving.protocol import golden  # which loads numpy, as gate does
    from scripts.steps import gate

    recipe, ensemble = version.pipeline.recipe, version.pipeline.ensemble
    kept = archive.numbers(version.pipeline)
    for file in FOLDER.glob(f"{ensemble}-*.npz"):
        name, _, number = file.stem.rpartition("-")
        if name == ensemble and int(number) not in kept:
            file.unlink()
    questions = recipe.golden(version.workspace)
    own = [each for each in zip(questions, answers, strict=False) if recipe.is_own_answer(each[1])]
    own.sort(key=lambda pair: sum(tensor.nbytes for tensor in pair[0].values()))
    bound = gate.find_served_bound(version.workspace.onnx, version.precision, len(own))
    with files.whole_file(path(ensemble, version.number)) as draft:
        while True:
            golden.save_proof(draft, [one for one, _ in own], [other for _, other in own], bound)
            if draft.stat().st_size <= MOST_BYTES:
                return
            own = own[: len(own) * 3 // 4]
            if not own:
                console.note(
                    f"{version.title}: its smallest request is too large for a proof, so that a "
                    "server with it does not prove itself before clients ask it"
                )
