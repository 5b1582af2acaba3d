"""The admin key: required to load and unload models, and to read and change how they run.

Inference, health, metadata, model configs and statistics are open to everyone who can reach the
ports; where these want API keys, the admin key is one, and so is a pass that it has signed.
"""

import hashlib
import hmac
import re
import time
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


def make_pass(key: str, seconds: float) -> str:
    """For a program that takes an API key only as an argument, which everybody on its machine can
    read: good for so long, and for nothing that takes the admin key."""
    until = str(round(time.time() + seconds))
    return f"{until}.{_sign(key, until)}"


def is_pass(key: str, text: str) -> bool:
    until, _, signature = text.partition(".")
    is_ours = hmac.compare_digest(signature.encode(), _sign(key, until).encode())
    return is_ours and time.time() < int(until)


def _sign(key: str, until: str) -> str:
    return hmac.digest(key.encode(), f"pass until {until}".encode(), hashlib.sha256).hex()
