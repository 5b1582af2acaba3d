"""The admin key of this checkout's servers: made once, kept through `make down`. Where a container
serves, docker/steps/init.sh makes it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from bundle_serving import guard
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT

PATH = ROOT / "build" / "key" / "admin.key"
SHOWN = PATH.relative_to(ROOT)

# Who the server is in a container, whoever started it: a user and a group that nobody else has. By
# the group it reads the key.
NOBODY = 65532


def ensure() -> Path:
    """The file, made where there is none: its owner's, and the server's in a container."""
    if not PATH.exists():
        files.write(PATH, f"{secrets.token_hex(32)}\n", mode=0o600)
        console.note(f"created the admin key {SHOWN}")
    try:
        PATH.chmod(0o640 if PATH.stat().st_gid == NOBODY else 0o600)
    except PermissionError:
        raise UserError(
            f"{SHOWN} belongs to another user", "run make as that user, or remove the file"
        ) from None
    load()
    return PATH


def container_can_read() -> bool:
    if not PATH.exists():
        return False
    status = PATH.stat()
    return status.st_gid == NOBODY and status.st_mode & 0o777 == 0o640


def load() -> str:
    if not PATH.exists():
        raise UserError(f"the admin key {SHOWN} is missing", "make up creates a new one")
    if not os.access(PATH, os.R_OK):
        raise UserError(f"{SHOWN} belongs to another user", "run this as the user who ran make up")
    try:
        return guard.read(PATH)
    except guard.NoKey as fault:
        raise UserError(str(fault), f"rm {SHOWN}; make up creates a new one") from None


def mark() -> int:
    """Another one where the key is another one, and nothing to guess the key from."""
    return PATH.stat().st_mtime_ns
