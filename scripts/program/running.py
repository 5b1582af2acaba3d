"""Runs verbs in the folder of the bundle, as make does. Stdlib only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scripts.base import layers
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.text import CALLED_AS
from scripts.program.command_line import PROGRAM, Call, as_makeflags, make_absolute
from scripts.program.verbs import Verb, list_steps


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
    environment = {**os.environ}
    # With it, every command would compile all its imports again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    typed = {name: make_absolute(name, value) for name, value in call.settings.items()}
    called_as = f"{PROGRAM} {'|'.join(verbs)} {os.path.relpath(call.folder)}"
    return environment | typed | {"MAKEFLAGS": as_makeflags(typed), CALLED_AS: called_as}


def is_installed(layer: str, folder: Path) -> bool:
    """As make asks it: the requirements are no newer."""
    try:
        installed = (folder / ".venv" / "layers" / layer).stat().st_mtime
    except FileNotFoundError:
        return False
    return installed >= max(_list_times(layers.list_folders(folder)))


def _list_times(folders: Iterable[Path]) -> Sequence[float]:
    return [path.stat().st_mtime for folder in folders for path in folder.rglob("*.txt")]


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Ctrl-C reaches it, too, and it says what became of it."""
    if code := subprocess.run(command, cwd=folder, env=environment).returncode:
        raise AlreadyReported(code if code > 0 else 128 - code)
