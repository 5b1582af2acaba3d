"""The file of API keys: their hashes, one client per line.

NAME SHA256 [REQUESTS_A_SECOND]
"""

import hashlib
import math
import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


class BadKeys(RuntimeError):
    """The key file cannot be read or changed; the message says why."""


@dataclass(frozen=True)
class Client:
    name: str
    # None: no limit.
    per_second: float | None = None


# The admin key is an API key too.
ADMIN = Client("admin")


def hash_key(key: str) -> str:
    """Keys are random, so a plain hash is as good as a slow one."""
    return hashlib.sha256(key.encode()).hexdigest()


def read(file: Path) -> dict[str, Client]:
    """The clients by the hashes of their keys."""
    clients = {}
    for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
        try:
            name, digest, *rate = line.split()
            per_second = float(*rate) if rate else None
            if per_second is not None and not 0 < per_second < math.inf:
                raise ValueError
            clients[digest] = Client(name, per_second)
        except (ValueError, TypeError):
            raise BadKeys(
                f"{file}, line {number}: not NAME SHA256 [RATE]; remove the line"
            ) from None
    return clients


def add(file: Path, client: Client) -> str:
    """Returns the new client's key, which is stored nowhere."""
    if not re.fullmatch(r"[\w.@-]{1,64}", client.name, re.ASCII) or client.name == ADMIN.name:
        raise BadKeys(
            f"{client.name!r} is not a valid name; use letters, digits and . @ _ -, not admin"
        )
    clients = read(file) if file.exists() else {}
    if client.name in names(clients):
        raise BadKeys(f"{client.name} already has a key; revoke it, or choose another name")
    key = secrets.token_urlsafe(32)
    _write(file, {**clients, hash_key(key): client})
    return key


def revoke(file: Path, name: str) -> None:
    clients = read(file) if file.exists() else {}
    if name not in names(clients):
        raise BadKeys(f"{name} has no key")
    _write(file, {digest: client for digest, client in clients.items() if client.name != name})


def names(clients: dict[str, Client]) -> list[str]:
    return [client.name for client in clients.values()]


def _write(file: Path, clients: dict[str, Client]) -> None:
    """On the disk before it returns: a power failure is to bring no revoked key back."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".new")
    unfinished.write_text("".join(_line(digest, client) for digest, client in clients.items()))
    # It contains only hashes, and a container's door reads it as a different user.
    unfinished.chmod(0o644)
    _sync(unfinished)
    unfinished.replace(file)
    with suppress(OSError):  # some file systems sync no folder
        _sync(file.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(digest: str, client: Client) -> str:
    rate = "" if client.per_second is None else f" {client.per_second:g}"
    return f"{client.name} {digest}{rate}\n"
