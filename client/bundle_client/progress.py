"""A progress bar at the bottom of the terminal while many pictures are classified."""

import sys
import time
from collections.abc import Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

T = TypeVar("T")
LINE_S = 10


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.1f} pictures/s")


def with_bar(results: Iterator[T], total: int, console: Console) -> Iterator[T]:
    """Yields the results as they arrive. The bar is hidden while a result is handled, so that
    output about it can go to the terminal or to a file."""
    bar = Progress(
        *(BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(compact=True)),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_interactive,
    )
    task = bar.add_task("", total=total)
    try:
        bar.start()
        for result in results:
            bar.stop()
            yield result
            bar.advance(task)
            bar.start()
    finally:
        bar.stop()


def with_lines(results: Iterator[T], total: int) -> Iterator[T]:
    """The same where there is no terminal: a line now and then."""
    started = told = time.monotonic()
    for count, result in enumerate(results, 1):
        yield result
        now = time.monotonic()
        if now - told >= LINE_S and not sys.stderr.isatty():
            rate = count / (now - started)
            print(f"{count:,} of {total:,}, {rate:.1f} pictures/s", file=sys.stderr, flush=True)
            told = now
