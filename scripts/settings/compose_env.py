"""Lines that make writes into .env, so that plain `docker compose` finds what make started: the
project's name, unique to this checkout, and the Compose files.

The user's own lines are left alone. A project name set by the user, in .env or in the environment,
is used everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import DOTENV, MARK, ROOT

NAME, FILE = "COMPOSE_PROJECT_NAME", "COMPOSE_FILE"

# Marks a line that make wrote and may change.
BY_MAKE = "  # written by make"


def project_name(environment: Mapping[str, str] = os.environ, dotenv: Path = DOTENV) -> str:
    name = environment.get(NAME) or _by_user(dotenv).get(NAME)
    if not name:
        return f"{folder_name() or 'bundle'}-{MARK}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UserError(
            f"{NAME}={name} is not a name that Compose accepts",
            "use lowercase letters, digits, hyphens and underscores",
        )
    return name


def folder_name() -> str:
    """Compose's default project name, derived from the folder's name."""
    return re.sub(r"[^a-z0-9_-]", "", ROOT.name.lower()).lstrip("_-")


def write(name: str = "", file: Path | None = None, dotenv: Path = DOTENV) -> None:
    """Without `file`, plain `docker compose` reads compose.yaml."""
    ours = {NAME: name, FILE: str(file.relative_to(ROOT)) if file else ""}
    by_user = _by_user(dotenv)
    lines = _lines_of_user(dotenv) + [
        f"{variable}={value}{BY_MAKE}"
        for variable, value in ours.items()
        if value and not by_user.get(variable)
    ]
    before = dotenv.read_text() if dotenv.exists() else ""
    after = "".join(f"{line}\n" for line in lines)
    if not after:
        dotenv.unlink(missing_ok=True)
    elif after != before:
        files.write(dotenv, after, dotenv.stat().st_mode & 0o777 if before else 0o644)


def _by_user(dotenv: Path) -> dict[str, str | None]:
    return dotenv_values(stream=StringIO("\n".join(_lines_of_user(dotenv))))


def _lines_of_user(dotenv: Path) -> list[str]:
    lines = dotenv.read_text().splitlines() if dotenv.exists() else []
    return [line for line in lines if not line.endswith(BY_MAKE)]
