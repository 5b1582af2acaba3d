"""The form of our own lines in the server's log: when, who, what. Triton's lines have their own."""

from __future__ import annotations

import struct
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime


def stamp(seconds: float | None = None) -> str:
    """A time as every line of ours begins: 2026-11-20T12:27:37.262Z."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log(who: str, text: str) -> None:
    with suppress(OSError):
        print(f"{stamp()} {who}: {escape_text(text)}", file=sys.stderr, flush=True)


def log_traceback(fault: BaseException) -> None:
    """In several lines, each of which may repeat what a client sent."""
    told = "".join(traceback.format_exception(fault)).splitlines()
    with suppress(OSError):
        print("\n".join(map(escape_text, told)), file=sys.stderr, flush=True)


def escape_text(text: str) -> str:
    """As JSON has it, what a terminal would obey, or show otherwise than it is."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _code(each) for each in text)


def _code(each: str) -> str:
    return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", _utf16(each)))


def _utf16(each: str) -> bytes:
    return each.encode("utf-16-be", "surrogatepass")
