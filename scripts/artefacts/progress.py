"""One line per step: what it does, and the seconds that it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.base.text import printable

_unfinished = ""  # the line that the cursor stands in


@contextmanager
def step(what: str) -> Iterator[None]:
    global _unfinished
    began = time.monotonic()
    line = f"- {printable(what)} … "
    if _unfinished:  # a step within a step has a line of its own
        print()
    print(line, end="", flush=True)
    _unfinished = line
    ended = "failed"
    try:
        yield
        ended = f"{time.monotonic() - began:.1f} s"
    except KeyboardInterrupt:
        ended = "interrupted"
        raise
    finally:
        print(ended if _unfinished == line else line + ended, flush=True)
        _unfinished = ""
