"""The form of our own lines in the server's log: when, who, what. Triton's lines have their own."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC, datetime


def stamp(seconds: float | None = None) -> str:
    """A time as every line of ours begins: 2026-11-20T12:27:37.262Z."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log(who: str, text: str) -> None:
    with suppress(OSError):
        print(f"{stamp()} {who}: {text}", file=sys.stderr, flush=True)
