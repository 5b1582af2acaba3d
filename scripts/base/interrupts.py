"""What Ctrl-C does, and when. Stdlib only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130  # the exit code that shells use

# Before one of our programs: while Python itself starts, it would print a traceback.
HELD_BACK = ("env", "--block-signal=INT")


def end_at_once() -> None:
    """Without a word: an exception in the middle of an import would print a traceback, and numpy
    would turn it into an ImportError. Nothing needs cleaning up yet.

    If it came while it was held back, it comes now.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def raised() -> Iterator[None]:
    """As KeyboardInterrupt, so that what was begun is cleaned up; if ignored, it stays ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def deferred(until: str) -> Iterator[None]:
    """Raises KeyboardInterrupt afterwards; if SIGINT was ignored, it stays ignored."""
    came = False
    before = signal.getsignal(signal.SIGINT)

    def later(*_: object) -> None:
        nonlocal came
        came = True
        print(f"- Ctrl-C received; stopping after {until}", flush=True)

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
