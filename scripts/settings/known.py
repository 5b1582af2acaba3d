"""Refuses what is no setting, before a command does anything."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from scripts.base.errors import UserError
from scripts.base.paths import DOTENV, ROOT
from scripts.settings import arguments, command_line, settings

# Docker and Compose read .env too.
OF_OTHERS = ("COMPOSE_", "DOCKER_", "BUILDKIT_")


class UnknownSetting(UserError):
    exit_code = 2


def require_known(typed: Collection[str] | None = None, dotenv: Path = DOTENV) -> None:
    """What is typed, and what .env has. The environment is full of what is not meant for us."""
    typed = command_line.typed() if typed is None else typed
    for name in typed:
        _require(name, {*settings.ALL, *arguments.ALL}, "")
    written = settings.in_dotenv(dotenv)
    for name in written:
        if not name.startswith(OF_OTHERS) and not _named_in(name, written.get("COMPOSE_OVERRIDE")):
            _require(name, settings.ALL, " in .env")


def _named_in(name: str, override: str | None) -> bool:
    """Compose fills the variables of the user's own file from .env."""
    try:
        return bool(override) and name in (ROOT / str(override)).read_text()
    except OSError:
        return False


def _require(name: str, known: Collection[str], where: str) -> None:
    if name in known:
        return
    import difflib  # for those who misspell alone

    near = difflib.get_close_matches(name, known, n=1)
    if name in arguments.ALL:
        remedy = f"it belongs behind a command: {name}=…"
    elif near:
        remedy = f"did you mean {near[0]}?"
    else:
        remedy = "docs/settings.md lists all of them"
    raise UnknownSetting(f"unknown setting {name}{where}", remedy)
