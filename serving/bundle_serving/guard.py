"""The admin key: who has it may load and unload models, and read and change how they are run.

Inference, health, metadata and the models' configurations are open to whoever reaches the ports.
"""

from __future__ import annotations

import re
from pathlib import Path

from bundle_serving.hidden_arguments import PLACE

HEADER = "admin-key"
GRPC_HEADER = f"triton-grpc-protocol-{HEADER}"
GUARDED = "model-repository,shared-memory,statistics,trace,logging"

# {secret} stands for the key: in this form the options may be seen.
OPTIONS = [
    f"--http-restricted-api={GUARDED}:{HEADER}={PLACE}",
    f"--grpc-restricted-protocol={GUARDED}:{HEADER}={PLACE}",
]


class NoKey(RuntimeError):
    """The file holds no key, or is not ours to read; the message says so."""


def read(file: Path) -> str:
    try:
        key = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise NoKey(
            f"{file} cannot be read ({getattr(fault, 'strerror', 'it is not text')})"
        ) from None
    # What neither Triton's option nor a header would take for something else.
    if not re.fullmatch(r"[\w.-]{16,}", key, re.ASCII):
        raise NoKey(f"{file} contains no key (16 or more letters, digits, '-', '_' and '.')")
    return key
