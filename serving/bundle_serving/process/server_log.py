"""Finds errors in Triton's log. Pure functions on its text."""

from __future__ import annotations

import re

# E1120 12:27:37.262297 10797 model_lifecycle.cc:654] "failed to load 'resnet50_onnx' version 1: …"
ERROR = re.compile(r'^E\d{4} [\d:.]+ \d+ \S+\] "?(.*)', re.MULTILINE)
# Normal without a GPU.
HARMLESS = ("CudaDriverHelper", "unable to create stream")
# Errors about ports and options are plain lines.
PLAIN = re.compile(r"^(?:error|failed|.*Address already in use).*", re.MULTILINE | re.IGNORECASE)


def first_error(log: str) -> str:
    """The root cause in one line; empty if there is none."""
    errors = [error for error in ERROR.findall(log) if not error.startswith(HARMLESS)]
    loading = [error for error in errors if "load" in error]
    plain = PLAIN.findall(log)
    line: str = (loading or errors or plain or [""])[0]
    line = line.partition("\\n")[0]  # Triton writes a Python model's traceback into one line
    return line.strip().rstrip('"')[:300]
