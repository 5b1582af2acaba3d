"""The admin key: required to load and unload models, and to read and change how they run.

Inference, health, metadata and model configs are open to everyone who can reach the ports.
"""

from __future__ import annotations

import re
from pathlib import Path

HEADER = "admin-key"
GRPC_HEADER = f"triton-grpc-protocol-{HEADER}"


class NoKey(RuntimeError):
    """The file contains no key or is not readable; the message says which."""


def read(file: Path) -> str:
    try:
        key = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise NoKey(
            f"{file} cannot be read ({getattr(fault, 'strerror', 'it is not text')})"
        ) from None
    # Only characters that are safe in a header.
    if not re.fullmatch(r"[\w.-]{16,}", key, re.ASCII):
        raise NoKey(f"{file} contains no key (16 or more letters, digits, '-', '_' and '.')")
    return key
