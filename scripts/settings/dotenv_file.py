"""Changes settings in .env and leaves everything else in it as the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from scripts.base import files
from scripts.base.paths import DOTENV


def read(path: Path = DOTENV) -> dict[str, str]:
    return {name: value or "" for name, value in dotenv_values(path).items()}


def change(values: Mapping[str, str], why: str, path: Path = DOTENV) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    text = path.read_text() if path.exists() else ""
    files.write(path, change_values(text, values, why), mode)


def change_values(text: str, values: Mapping[str, str], why: str) -> str:
    """Sets these values, in place or else at the end, with the reason as a comment above the first.
    An older comment that begins with the same word is replaced."""
    older = f"# {why.partition(':')[0]}"
    lines: list[str] = []
    left = dict(values)
    explained = False
    for line in text.splitlines():
        name = _set_by(line)
        if line.startswith(older):
            continue
        if name not in values:
            lines.append(line)
        elif name in left:  # a second line of the same name would override ours
            lines += [] if explained else [f"# {why}"]
            lines.append(f"{name}={left.pop(name)}")
            explained = True
    if left and not explained:
        lines += ["", f"# {why}"] if lines else [f"# {why}"]
    lines += [f"{name}={value}" for name, value in left.items()]
    return "\n".join(lines) + "\n"


def _set_by(line: str) -> str | None:
    found = re.match(r"\s*(?:export\s+)?(\w+)\s*=", line)
    return found[1] if found else None
