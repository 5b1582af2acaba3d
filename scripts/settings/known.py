"""Refuses unknown settings and invalid values before a command is even imported, which takes some
of them seconds."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from scripts.base.errors import WrongWord
from scripts.base.paths import DOTENV, ROOT
from scripts.settings import arguments, dotenv_file, settings

# .env may also contain variables of Docker and Compose.
OF_OTHERS = ("COMPOSE_", "DOCKER_", "BUILDKIT_")


def require_known(
    typed: Collection[str] | None = None,
    dotenv: Path = DOTENV,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Checks the command line and .env; the environment has many variables that are not for us."""
    require_typed(arguments.list_typed() if typed is None else typed, environment)
    written = dotenv_file.read(dotenv)
    for name in written:
        if not name.startswith(OF_OTHERS) and not _is_named_in(
            name, written.get("COMPOSE_OVERRIDE")
        ):
            _require(name, settings.ALL, " in .env")


def require_typed(typed: Collection[str], environment: Mapping[str, str]) -> None:
    known = settings.ALL | arguments.ALL
    for name in typed:
        _require(name, known, "")
        if value := environment.get(name, "").strip():
            known[name].read(value)


def list_idle(
    described: str, typed: Collection[str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Arguments that were typed, and that the command's docstring does not name: they change
    nothing. Settings are not among them: commands read most of them through what they start."""
    taken = {*re.findall(r"\b[A-Z][A-Z_0-9]*\b", described), arguments.Arguments.json.name}
    own = arguments.ALL.keys() - settings.ALL.keys() - taken
    return [name for name in typed if name in own and environment.get(name, "").strip()]


def _is_named_in(name: str, override: str | None) -> bool:
    """Variables that the user's own Compose file takes from .env."""
    try:
        return bool(override) and name in (ROOT / str(override)).read_text()
    except (OSError, ValueError):  # not there, or no text
        return False


def _require(name: str, known: Collection[str], where: str) -> None:
    if name in known:
        return
    import difflib  # only for misspelt names

    near = difflib.get_close_matches(name.upper(), known, n=1)
    if name in dotenv_file.RENAMED:
        remedy = f"it is called {dotenv_file.RENAMED[name]} now; make upgrade renames it in .env"
    elif name in arguments.ALL:
        remedy = f"give it to a command: {name}=…"
    elif near:
        remedy = f"did you mean {near[0]}?"
    else:
        remedy = "docs/settings.md lists all of them"
    raise WrongWord(f"unknown setting {name}{where}", remedy)
