"""What .env says, and what make changes in it; all else there stays as the user wrote it.

Plain `docker compose` finds in it what make started: the project's name, unique to this checkout,
and the Compose files. A project name set by the user, in .env or in the environment, is used
everywhere.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import DOTENV, MARK, ROOT

# Settings that had other names in earlier bundles.
RENAMED = {"MOST_P99": "MAX_P99_RATIO"}
_RENAMED_LINE = re.compile(rf"^(\s*(?:export\s+)?)({'|'.join(RENAMED)})(\s*=.*)$", re.MULTILINE)

NAME, FILE = "COMPOSE_PROJECT_NAME", "COMPOSE_FILE"

# Marks a line that make wrote and may change.
BY_MAKE = "  # written by make"


def read(path: Path = DOTENV) -> dict[str, str]:
    try:
        return _parse(_read_text(path), path)
    except (UnicodeDecodeError, IsADirectoryError):
        raise UserError(f"{path.name} is not text", "write NAME=value in each line") from None


def _parse(text: str, path: Path) -> dict[str, str]:
    if not text:
        return {}
    from dotenv import dotenv_values  # slow to import
    from dotenv.parser import parse_stream

    for each in parse_stream(io.StringIO(text)):
        if each.error or (each.key and each.value is None):
            wrong = each.original.string
            line = each.original.line + wrong[: -len(wrong.lstrip())].count("\n")
            raise UserError(
                f"{path.name}, line {line}: {wrong.strip()} is no setting",
                "write NAME=value, or # before a comment",
            )
    return {name: value or "" for name, value in dotenv_values(stream=io.StringIO(text)).items()}


def _read_text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _write_text(path: Path, text: str) -> None:
    """A link stays one, and what it leads to is written."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    files.write(path.resolve(), text, mode, lasting=True)


def change(values: Mapping[str, str], why: str, path: Path = DOTENV) -> None:
    _write_text(path, change_values(_read_text(path), values, why))


def change_values(text: str, values: Mapping[str, str], why: str) -> str:
    """Sets these values, in place or else at the end, with the reason as a comment above the first.
    An older comment that begins with the same word is replaced."""
    older = f"# {why.partition(':')[0]}:"
    lines: list[str] = []
    left = dict(values)
    explained = False
    for line in text.splitlines():
        found = re.match(r"\s*(?:export\s+)?(\w+)\s*=", line)
        name = found[1] if found else None
        if line.startswith(older):
            continue
        if name not in values:
            lines.append(line)
        elif name in left:  # a second line of the same name would override ours
            lines += [] if explained else [f"# {why}"]
            lines.append(f"{name}={_quote(left.pop(name))}")
            explained = True
    if left and not explained:
        lines += ["", f"# {why}"] if lines else [f"# {why}"]
    lines += [f"{name}={_quote(value)}" for name, value in left.items()]
    return "\n".join(lines) + "\n"


def _quote(value: str) -> str:
    """Where it would be read otherwise: a path may have what begins a comment or a quote."""
    if not re.search(r"\s#|^['\"#]", value):
        return value
    quote = '"' if "'" in value else "'"
    return quote + re.sub(rf"([\\{quote}])", r"\\\1", value) + quote


def list_renamed() -> dict[str, str]:
    """The earlier names in it, each with today's."""
    return {name: RENAMED[name] for _, name, _ in _RENAMED_LINE.findall(_read_text(DOTENV))}


def rename() -> None:
    """A line with the name of today wins over one with the earlier name. Keeps .env as it was in
    .env.before, unless that is there: it has settings that a restore found, or an earlier run."""
    before, aside = DOTENV.read_text(), DOTENV.with_name(".env.before")

    def line(found: re.Match[str]) -> str:
        name = RENAMED[found[2]]
        today = re.search(rf"^\s*(?:export\s+)?{name}\s*=", before, re.MULTILINE)
        return f"# {found[0].strip()}" if today else f"{found[1]}{name}{found[3]}"

    if not aside.exists():
        files.write(aside, before, DOTENV.stat().st_mode & 0o777)
    _write_text(DOTENV, _RENAMED_LINE.sub(line, before))


def project_name(environment: Mapping[str, str] = os.environ, dotenv: Path = DOTENV) -> str:
    name = environment.get(NAME) or _parse_users(dotenv).get(NAME)
    if not name:
        return f"{folder_name() or 'bundle'}-{MARK}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise UserError(
            f"{NAME}={name} is not a name that Compose accepts",
            "use lowercase letters, digits, hyphens and underscores",
        )
    return name


def name_by_make(dotenv: Path = DOTENV) -> str | None:
    """The name under which make started what runs, if the user chose none."""
    found = re.search(f"^{NAME}=(.*){BY_MAKE}$", _read_text(dotenv), re.MULTILINE)
    return found[1] if found else None


def folder_name() -> str:
    """Compose's default project name, derived from the folder's name."""
    return re.sub(r"[^a-z0-9_-]", "", ROOT.name.lower()).lstrip("_-")


def write_for_compose(name: str = "", file: Path | None = None, dotenv: Path = DOTENV) -> None:
    """Without `file`, plain `docker compose` reads compose.yaml."""
    ours = {NAME: name, FILE: str(file.relative_to(ROOT)) if file else ""}
    by_user = _parse_users(dotenv)
    lines = _list_users_lines(dotenv) + [
        f"{variable}={value}{BY_MAKE}"
        for variable, value in ours.items()
        if value and not by_user.get(variable)
    ]
    after = "".join(f"{line}\n" for line in lines)
    if not after and not dotenv.is_symlink():
        dotenv.unlink(missing_ok=True)
    elif after != _read_text(dotenv):
        _write_text(dotenv, after)


def _parse_users(dotenv: Path) -> dict[str, str]:
    return _parse("\n".join(_list_users_lines(dotenv)), dotenv)


def _list_users_lines(dotenv: Path) -> list[str]:
    return [line for line in _read_text(dotenv).splitlines() if not line.endswith(BY_MAKE)]
