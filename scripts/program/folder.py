"""The user's folder of the bundle: the package's files, laid out as in a checkout, beside what is
built there; and verbs that run in it, as make does it. Stdlib only."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from itertools import chain, count
from pathlib import Path

import kinds
from scripts.base import files, layers, paths
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import ROOT
from scripts.base.text import CALLED_AS
from scripts.program.command_line import (
    OWN_VERBS,
    PROGRAM,
    Call,
    absolute,
    as_makeflags,
    is_here,
    make_absolute,
)
from scripts.program.verbs import Verb, list_steps

PACKAGE = "triton-bundle"
PREFIX = "triton_bundle/"
NOTE = ".laid-out.json"
BEGUN = "begun"
# Where the user's files go that a newer package has another one for.
EDITED = "edited"


def look_for_own(call: Call) -> None:
    """Before anything reads what the user's own kinds of pipelines there bring."""
    paths.FOLDER, paths.DOTENV = call.folder, call.folder / ".env"
    if own := call.settings.get("OWN"):
        os.environ["OWN"] = str(absolute(own)) if is_here(own) else own
    kinds.look_for_own()


def prepare(folder: Path) -> None:
    """Lays out the package's files, or those of a newer one over an older one's; what is the user's
    own there (.env, own/, build/) stays, and what is edited of the package's until that has a newer
    one."""
    wanted = _list_packaged()
    earlier = files.read_json(folder / NOTE)
    if wanted is None or earlier == wanted:
        return
    another = f"name another one: {PACKAGE} --folder DIR …"
    is_used = any(folder.iterdir()) if folder.is_dir() else folder.exists()
    if is_used and not (folder / NOTE).exists():
        raise UserError(f"{folder} has other files, and is not a folder of {PACKAGE}", another)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileNotFoundError, NotADirectoryError) as fault:
        raise UserError(f"{folder} cannot be made ({fault.strerror})", another) from None
    # Who finds it begun goes on, instead of taking it for somebody else's folder.
    files.write(folder / NOTE, json.dumps(earlier | {BEGUN: ""}))
    for name in (earlier | wanted).keys() - {BEGUN}:
        _lay_out(folder, name, earlier.get(name), wanted.get(name))
    files.write(folder / NOTE, json.dumps(wanted))


def _lay_out(folder: Path, name: str, earlier: str | None, wanted: str | None) -> None:
    file = folder / name
    if file.is_file() and _hash(file) not in (earlier, wanted):
        if earlier == wanted:
            return
        kept = _find_free(folder / EDITED / name)
        kept.parent.mkdir(parents=True, exist_ok=True)
        file.replace(kept)
        if earlier != "":  # as 1.5.0 noted it of all where it was killed: they may be its own
            made = f"what you made of it is {kept}"
            print(f"- {file} is of this {PACKAGE} now; {made}", file=sys.stderr)
    if wanted is None:
        file.unlink(missing_ok=True)
        return
    with files.draft_of(file) as draft:
        shutil.copy(ROOT / name, draft)  # as of now: what was installed for others is older


def _find_free(path: Path) -> Path:
    """A newer package still may have put one there."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in count(1))
    return next(each for each in chain([path], numbered) if not each.exists())


def _hash(file: Path) -> str:
    """As an installer notes it."""
    digest = bytes.fromhex(files.sha256(file))
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


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


def require_system() -> None:
    if os.name != "posix":
        raise UserError(
            f"{PROGRAM} does not run on Windows itself",
            "run it in WSL 2, where Docker Desktop's containers are reached, too",
        )


def run(call: Call, verbs: Mapping[str, Verb]) -> None:
    environment = make_environment(call, verbs)
    # Held back until a command can handle it, as make does it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    python = str(call.folder / ".venv" / "bin" / "python")
    if not verbs[call.verb].words:
        raise UserError(
            f"{call.verb} has no $(RUN) line, which is all that {PROGRAM} runs", "give it one"
        )
    *before, last = list_steps(verbs[call.verb], verbs)
    for step in before:
        if isinstance(step, Verb):
            _run([python, "-m", *step.words], call.folder, environment)
        elif not is_installed(step, call.folder):
            _run([sys.executable, "-m", "scripts.bootstrap", step], call.folder, environment)
    assert isinstance(last, Verb)
    # In the place of this program: what it is sent, such as SIGTERM, is for the command.
    os.chdir(call.folder)
    os.execve(python, [python, "-m", *last.words], environment)


def make_environment(call: Call, verbs: Mapping[str, Verb]) -> dict[str, str]:
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONIOENCODING")  # as in the Makefile
    environment = {name: text for name, text in os.environ.items() if name not in unwanted}
    environment["PYTHONUTF8"] = "1"
    typed = {name: make_absolute(name, value) for name, value in call.settings.items()}
    known = "|".join([*verbs, *OWN_VERBS])
    called_as = f"{PROGRAM} {known} {os.path.relpath(call.folder)}"
    return environment | typed | {"MAKEFLAGS": as_makeflags(typed), CALLED_AS: called_as}


def is_installed(layer: str, folder: Path) -> bool:
    """As make asks it: the Python is the one that it was made with, else that is told; and the
    requirements are no newer."""
    venv = folder / ".venv"
    try:
        python = (venv / "bin" / "python").resolve(strict=True)
        (venv / "lib" / python.name / "site-packages").stat()
        installed = (venv / "layers" / layer).stat().st_mtime
    except FileNotFoundError:
        return False
    written = (path for home in layers.list_folders(folder) for path in home.rglob("*.txt"))
    return installed >= max(path.stat().st_mtime for path in written)


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Ctrl-C reaches it, too, and it says what became of it."""
    if code := subprocess.run(command, cwd=folder, env=environment).returncode:
        raise AlreadyReported(code if code > 0 else 128 - code)
