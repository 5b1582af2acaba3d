"""The user's folder of the bundle: the package's files, laid out as in a checkout, beside what is
built there. Stdlib only."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import kinds
from scripts.base import files, paths
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.program.command_line import Call, absolute, is_here

PACKAGE = "triton-bundle"
PREFIX = "triton_bundle/"
NOTE = ".laid-out.json"


def look_for_own(call: Call) -> None:
    """Before anything reads what the user's own kinds of pipelines there bring."""
    paths.FOLDER, paths.DOTENV = call.folder, call.folder / ".env"
    if own := call.settings.get("OWN"):
        os.environ["OWN"] = str(absolute(own)) if is_here(own) else own
    kinds.look_for_own()


def prepare(folder: Path) -> None:
    """Lays out the package's files, or those of a newer one over an older one's; what is the user's
    own there (.env, own/, build/) stays."""
    wanted = _list_packaged()
    earlier = _read_note(folder)
    if wanted is None or earlier == wanted:
        return
    another = f"name another one: {PACKAGE} --folder DIR …"
    if earlier is None and folder.exists() and not _is_empty(folder):
        raise UserError(f"{folder} has other files, and is not a folder of {PACKAGE}", another)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise UserError(f"{folder} cannot be made ({fault.strerror})", another) from None
    # Begun: who finds no hashes goes on, instead of taking it for somebody else's folder.
    _write_note(folder, dict.fromkeys(earlier or {}, ""))
    for name in (earlier or {}).keys() - wanted.keys():
        (folder / name).unlink(missing_ok=True)
    for name in wanted:
        with files.draft_of(folder / name) as draft:
            shutil.copy2(ROOT / name, draft)
    _write_note(folder, wanted)


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _list_packaged() -> dict[str, str] | None:
    """Files and their hashes, as the installer notes them; None in a checkout."""
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    if not Path(str(installed.locate_file(PREFIX))).samefile(ROOT):
        return None
    return {
        str(each).removeprefix(PREFIX): each.hash.value if each.hash else ""
        for each in installed.files or ()
        if str(each).startswith(PREFIX) and "__pycache__" not in each.parts
        if str(each) != f"{PREFIX}__init__.py"  # where the program begins
    }


def _read_note(folder: Path) -> dict[str, str] | None:
    try:
        found: dict[str, str] = json.loads((folder / NOTE).read_text())
        return found
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_note(folder: Path, hashes: dict[str, str]) -> None:
    files.write(folder / NOTE, json.dumps(hashes))
