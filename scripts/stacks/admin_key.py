"""The operator's key of this project's servers: made once, kept through `make down`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from bundle_serving import guard
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT

PATH = ROOT / "build" / "run" / "admin.key"
SHOWN = PATH.relative_to(ROOT)


def ensure(owner: int | None = None) -> Path:
    """The file, made where there is none. It is its owner's alone: whoever runs make or, where that
    is root, the user that the server runs as, who has the key in its process anyway."""
    if not PATH.exists():
        files.write(PATH, f"{secrets.token_hex(32)}\n", mode=0o600)
        console.note(f"a new key for the operator is in {SHOWN}")
    try:
        PATH.chmod(0o600)
        if owner is not None and PATH.stat().st_uid != owner:
            os.chown(PATH, owner, -1)
    except PermissionError:
        raise UserError(
            f"{SHOWN} belongs to another user", "run make as that one, or remove the file"
        ) from None
    load()
    return PATH


def load() -> str:
    if not PATH.exists():
        raise UserError(f"the operator's key, {SHOWN}, is gone", "make up makes a new one")
    if not os.access(PATH, os.R_OK):
        raise UserError(f"{SHOWN} is another user's", "ask as the one who ran make up")
    try:
        return guard.read(PATH)
    except guard.NoKey as fault:
        raise UserError(str(fault), f"rm {SHOWN}, and make up makes a new one") from None


def mark() -> int:
    """Another one where the key is another one, and nothing to guess the key from."""
    return PATH.stat().st_mtime_ns
