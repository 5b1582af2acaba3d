"""One line per step: what it does, and the seconds that it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.base.text import printable


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"- {printable(what)} … ", end="", flush=True)
    try:
        yield
    except BaseException:
        print("failed", flush=True)
        raise
    print(f"{time.monotonic() - began:.1f} s", flush=True)
