"""What Ctrl-C, SIGTERM and the end of a terminal (SIGHUP) do, and when. Stdlib only."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

from scripts.base.paths import ROOT

INTERRUPTED = 130  # the exit code that shells use
# make, and a shell that ends, pass them on to what has got them already.
TWICE = signal.SIGTERM, signal.SIGHUP

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


Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """As KeyboardInterrupt, so that what was begun is cleaned up; if ignored, it stays ignored."""
    before, sys.unraisablehook = sys.unraisablehook, _raise_later
    try:
        with _handle_with(_raise):
            yield
    finally:
        sys.unraisablehook = before


def _raise_later(unraised: sys.UnraisableHookArgs) -> None:
    """In a finalizer, say, nobody is there to raise to: Python would go on as if none had come."""
    if unraised.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraised)
        return
    again = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def _raise(number: int, _: FrameType | None = None) -> NoReturn:
    """Once: what cleans up after the first one is not to be interrupted by the second."""
    _leave_terminal(number)
    for each in TWICE:
        if signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, _pass_over)
    raise KeyboardInterrupt


def _leave_terminal(number: int, _: FrameType | None = None) -> None:
    """What is written to one that has ended fails, and would end what cleans up."""
    if number == signal.SIGHUP:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for file in (1, 2):
            if stat.S_ISCHR(os.fstat(file).st_mode):
                os.dup2(nowhere, file)
        os.close(nowhere)


def _pass_over(number: int, _: FrameType | None) -> None:
    _leave_terminal(number)


def has_come() -> bool:
    return any(signal.getsignal(each) is _pass_over for each in TWICE)


def ignore_to_the_end() -> None:
    """Python gives its handlers up as it ends: a second one would then be the exit code."""
    for each in TWICE:
        if signal.getsignal(each) is _pass_over:
            signal.signal(each, signal.SIG_IGN)


@contextmanager
def defer_interrupts(until: str) -> Iterator[None]:
    """Raises KeyboardInterrupt afterwards; if it was ignored, it stays ignored."""
    came: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        _leave_terminal(number)
        if not came:
            name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            # Not by print, which this may have interrupted; nor among lines of JSON.
            os.write(2, f"- {name} received; stopping after {until}\n".encode())
        came.append(number)

    try:
        with _handle_with(later):
            yield
    finally:
        if came:
            _raise(came[0])


def start_apart(
    command: Sequence[str | Path], log: IO[Any], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A program that writes to this log, and that Ctrl-C in this terminal must not reach."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def ignore_interrupts() -> AbstractContextManager[None]:
    return _handle_with(signal.SIG_IGN)


@contextmanager
def _handle_with(handler: Handler) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *TWICE)}
    for number, was in before.items():
        if was is not signal.SIG_IGN:
            ignores_end = handler is signal.SIG_IGN and number == signal.SIGHUP
            signal.signal(number, _leave_terminal if ignores_end else handler)
    try:
        yield
    finally:
        for number, was in before.items():
            # A second one may come until the very end.
            if signal.getsignal(number) is not _pass_over:
                signal.signal(number, was)
