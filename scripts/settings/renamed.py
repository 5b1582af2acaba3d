"""Settings that had other names in earlier bundles."""

from __future__ import annotations

import re

from scripts.base import files
from scripts.base.paths import DOTENV

RENAMED = {"MOST_P99": "MAX_P99_RATIO"}

_LINE = re.compile(rf"^(\s*(?:export\s+)?)({'|'.join(RENAMED)})(\s*=.*)$", re.MULTILINE)


def rename_settings(text: str) -> str:
    """The text of a .env with today's names; everything else as the user wrote it. A line with the
    name of today wins over one with the earlier name."""

    def line(found: re.Match[str]) -> str:
        name = RENAMED[found[2]]
        today = re.search(rf"^\s*(?:export\s+)?{name}\s*=", text, re.MULTILINE)
        return f"# {found[0].strip()}" if today else f"{found[1]}{name}{found[3]}"

    return _LINE.sub(line, text)


def in_dotenv() -> dict[str, str]:
    """The earlier names in .env, each with today's."""
    found = _LINE.findall(DOTENV.read_text()) if DOTENV.exists() else []
    return {name: RENAMED[name] for _, name, _ in found}


def rename() -> None:
    """Keeps .env as it was in .env.before."""
    before = DOTENV.read_text()
    mode = DOTENV.stat().st_mode & 0o777
    files.write(DOTENV.with_name(".env.before"), before, mode)
    files.write(DOTENV, rename_settings(before), mode)
