"""Lists the clients that may ask the server; adds one, or revokes its key. No restart is needed.

make keys
make keys ADD=ann          RATE=5 for at most 5 requests a second
make keys REVOKE=ann
"""

from __future__ import annotations

import os
import sys

from bundle_door.key_file import BadKeys, Client, add, read, revoke
from scripts.base.errors import UserError, guarded
from scripts.base.paths import ROOT

FILE = ROOT / "build" / "api_keys"


def main() -> int:
    try:
        if name := os.environ.get("ADD"):
            print(add(FILE, Client(name, rate(os.environ.get("RATE", "")))))
            print(f"the key of {name}: keep it now, it is shown only once", file=sys.stderr)
        elif name := os.environ.get("REVOKE"):
            revoke(FILE, name)
        else:
            show(list(read(FILE).values()) if FILE.exists() else [])
    except BadKeys as fault:
        cause, _, remedy = str(fault).partition("; ")
        raise UserError(cause, remedy) from None
    return 0


def show(clients: list[Client]) -> None:
    for client in clients:
        print(client.name, f"{client.per_second:g} a second" if client.per_second else "")
    if not clients:
        print("no keys yet; add one: make keys ADD=name", file=sys.stderr)


def rate(text: str) -> float | None:
    try:
        per_second = float(text) if text else None
    except ValueError:
        per_second = 0
    if per_second is not None and not 0 < per_second < 1e6:
        raise UserError(f"RATE={text} is not a number of requests a second", "use a number above 0")
    return per_second


if __name__ == "__main__":
    sys.exit(guarded(main))
