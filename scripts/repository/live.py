"""The repository that Triton reads: the models' configs and the version folders of the live
version, and of the candidate during a switch."""

import py_compile
import shutil
from pathlib import Path

from scripts.artefacts.manifest import Manifest
from scripts.base import files
from scripts.base.paths import ROOT
from scripts.repository import archive
from scripts.repository.archive import Version
from scripts.repository.model_folders import version_numbers

REPOSITORY = ROOT / "build" / "live"


def place(version: Version, repository: Path) -> None:
    """Adds a version's folders. Triton ignores them until told to load them."""
    # Whatever links or unlinks a file's content elsewhere changes the file for Triton, which looks
    # at ctime too: it would load a model anew that serves.
    for leftover in repository.rglob(".*.tmp"):  # of a killed command; a server would get it, too
        leftover.unlink(missing_ok=True)
    install = files.copy if repository == REPOSITORY else files.link
    for model, number in version.models.items():
        member = version.member(model)
        for source in archive.files_of(member):
            name = str(source.relative_to(member))
            target = repository / model / str(number) / name
            if target.exists() and files.sha256(target) == version.hashes[model].get(name):
                continue
            install(source, target)
            # Otherwise Python does it during the load, and Triton sees a change.
            if target.suffix == ".py":
                py_compile.compile(str(target), doraise=False, quiet=2)
    files.let_all_read(repository)


def describe_network(model: str, version: str = "") -> str:
    """A network model's name in the API, and the network behind it."""
    number = version or str(max(version_numbers(REPOSITORY / model), default=1))
    manifest = Manifest.load(REPOSITORY / model / number / "manifest.json")
    return f"{model}, serving {manifest.network}" if manifest else model


def leave_only(version: Version) -> None:
    """Removes the folders of all other versions."""
    for model, number in version.models.items():
        for other in version_numbers(REPOSITORY / model):
            if other != number:
                shutil.rmtree(REPOSITORY / model / str(other))
