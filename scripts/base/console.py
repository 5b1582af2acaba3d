"""Console output: notes, spinners, progress bars."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from scripts.base.text import as_called, fold, printable

if TYPE_CHECKING:
    from rich.status import Status


class Output(Console):
    """Escapes control characters in all text; only rich's own control codes reach the terminal."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)

    def on_broken_pipe(self) -> None:
        """No fault, if nobody reads on (run_guarded); rich would exit."""
        raise BrokenPipeError


# In a pipe nothing wraps: a search finds each row on one line.
ENDLESS = 100_000
out = Output(highlight=False, width=None if sys.stdout.isatty() else ENDLESS)

# Smaller transfers end before anyone could read a bar.
SHOWN_BYTES = 1_000_000


class Form:
    """JSON=1: what commands say, and the rows of their tables, are lines of JSON."""

    is_json = False


def note(text: str, **fields: object) -> None:
    say(text if Form.is_json else f"- {text}", indent="  ", **fields)


def write_json(values: Mapping[str, object]) -> None:
    out.print(json.dumps(values), markup=False, soft_wrap=True)


def say(text: str, indent: str = "", **fields: object) -> None:
    """In a terminal, broken between words; what follows is indented. `fields`: what a program
    would have to read out of it."""
    if Form.is_json:
        write_json({"says": as_called(text), **fields})
        return
    out.print(fold(printable(as_called(text)), out.width, indent), markup=False, soft_wrap=True)


@contextlib.contextmanager
def all_output_on_stderr() -> Iterator[None]:
    """For this process and its children: stdout is reserved for answers that a program may read."""
    sys.stdout.flush()
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(answers, 1)
        os.close(answers)


class Waiting:
    """A line that says what is awaited and for how long; it is animated in a terminal only."""

    def __init__(self, what: str, status: Status) -> None:
        self._what, self._status = what, status
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def show(self, detail: str = "") -> None:
        line = f"{self._what} ({self.seconds:.0f} s) {detail}"[: out.width - 4]
        self._status.update(escape(line))  # Triton's words, say, or a model's


@contextlib.contextmanager
def waiting(what: str) -> Iterator[Waiting]:
    if not out.is_terminal:
        note(f"{what} …")
    with out.status(escape(what)) as status:
        yield Waiting(what, status)


@contextlib.contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar for a transfer; call what it yields with the number of bytes just transferred."""
    from rich import progress as bars  # slow to import, and seldom needed

    if not out.is_terminal and total > SHOWN_BYTES:
        note(f"{what}: {total / 1e6:.0f} MB …")
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
    )
    shown = out.is_terminal and total > SHOWN_BYTES
    with bars.Progress(*columns, console=out, transient=True, disable=not shown) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
