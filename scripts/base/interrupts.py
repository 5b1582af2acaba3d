"""Ctrl-C, where it must not come at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.base import console


@contextmanager
def deferred(until: str) -> Iterator[None]:
    """It comes afterwards; where it is ignored, it stays so."""
    came = False
    before = signal.getsignal(signal.SIGINT)

    def later(*_: object) -> None:
        nonlocal came
        came = True
        console.note(f"Ctrl-C received; stopping after {until}")

    if callable(before):
        signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


@contextmanager
def ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
