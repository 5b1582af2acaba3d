"""What steps say: a line for each, with the seconds that it took, and lines of what they found.
Stdlib only."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.base.text import fold, printable

# In a pipe nothing wraps.
ENDLESS = 100_000
# Of the seconds that end a step's line.
ENDING = 8

_unfinished = ""  # the line that the cursor stands in


@contextmanager
def step(what: str) -> Iterator[None]:
    global _unfinished
    began = time.monotonic()
    line = _fold(f"- {printable(what)} …", _find_width() - ENDING) + " "
    if not _is_json():
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
        if _is_json():
            tell(f"{what} … {ended}")
        else:
            print(ended if _unfinished == line else line + ended, flush=True)
        _unfinished = ""


def tell(text: str) -> None:
    """In a terminal, broken between words; what follows is indented."""
    shown = (
        json.dumps({"says": text.strip().removeprefix("- ")})
        if _is_json()
        else _fold(printable(text), _find_width())
    )
    print(shown, flush=True)


def _is_json() -> bool:
    """JSON=1: a line of JSON each, as what commands say."""
    return bool(os.environ.get("JSON"))


def _fold(line: str, width: int) -> str:
    below = len(line) - len(line.lstrip()) + 2
    return fold(line, width, " " * below)


def _find_width() -> int:
    """In a container, of the terminal outside."""
    return shutil.get_terminal_size((ENDLESS, 0)).columns
