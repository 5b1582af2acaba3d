"""Deferring or ignoring Ctrl-C where it must not interrupt at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.base import console


@contextmanager
def deferred(until: str) -> Iterator[None]:
    """Raises KeyboardInterrupt afterwards; if SIGINT was ignored, it stays ignored."""
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
