"""The server's log: the form of our own lines in it (when, who, what), and the errors in Triton's
lines, which have their own."""

import re
import struct
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime

# E1120 12:27:37.262297 10797 model_lifecycle.cc:654] "failed to load 'resnet50_onnx' version 1: …"
ERROR = re.compile(r'^E\d{4} [\d:.]+ \d+ \S+\] "?(.*)', re.MULTILINE)
# Normal without a GPU.
HARMLESS = ("CudaDriverHelper", "unable to create stream", "Error: Failed to initialize NVML")
# Errors about ports and options are plain lines.
PLAIN = re.compile(r"^(?:error|failed|.*Address already in use).*", re.MULTILINE | re.IGNORECASE)


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
    utf16 = each.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", utf16))


def first_error(text: str) -> str:
    """The root cause in one line; empty if there is none."""
    errors = [error for error in ERROR.findall(text) if not error.startswith(HARMLESS)]
    loading = [error for error in errors if "load" in error]
    plain = [line for line in PLAIN.findall(text) if not line.startswith(HARMLESS)]
    line: str = (loading or errors or plain or [""])[0]
    line = line.partition("\\n")[0]  # Triton writes a Python model's traceback into one line
    return line.strip().rstrip('"')[:300]


def explain_end(text: str) -> str:
    """Why a server has ended, in one line: without an error, what it said last."""
    last = text.rstrip().rpartition("\n")[2][:300]
    return first_error(text) or f"it last said: {last or 'nothing'}"
