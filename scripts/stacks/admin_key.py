"""The admin key of this checkout's servers: created once, kept by `make down`. For containers,
docker/steps/init.sh creates it."""

import os
import secrets
from pathlib import Path

from bundle_serving.process import guard
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.base.reader import may_read

PATH = ROOT / "build" / "key" / "admin.key"
SHOWN = PATH.relative_to(ROOT)
CREATED = "make up creates a new one; for several servers, the command that started them"


def ensure() -> Path:
    """The key's file, created if missing; its owner and the server's container can read it."""
    if not PATH.exists():
        files.write(PATH, f"{secrets.token_hex(32)}\n", mode=0o600)
        from scripts.base import console  # slow to import, and seldom needed

        console.note(f"created the admin key {SHOWN}")
    status = PATH.stat()
    try:
        if not (files.is_shared() and status.st_uid != os.geteuid()):  # a colleague's
            for_group = may_read(PATH) or files.is_shared()
            PATH.chmod(0o640 if for_group else 0o600)
    except PermissionError:
        raise UserError(
            f"{SHOWN} belongs to another user", "run make as that user, or remove the file"
        ) from None
    load()
    return PATH


def load() -> str:
    if not PATH.exists():
        raise UserError(f"the admin key {SHOWN} is missing", CREATED)
    if not os.access(PATH, os.R_OK):
        raise UserError(f"{SHOWN} belongs to another user", "run this as the user who ran make up")
    try:
        return guard.read(PATH)
    except guard.NoKey as fault:
        raise UserError(str(fault), f"rm {SHOWN}; {CREATED}") from None


def mark() -> int:
    """Changes with the key, and reveals nothing about it."""
    return PATH.stat().st_mtime_ns
