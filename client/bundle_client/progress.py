"""A bar at the foot of the terminal while many pictures are asked about."""

import os
import shutil
import sys
import time

WIDTH = 24


class Progress:
    """Draws on stderr where that is a terminal; is hidden while anything else is written."""

    def __init__(self, total: int, *, wanted: bool) -> None:
        self._total = total
        self._started = time.monotonic()
        self._shown = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def hide(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, done: int) -> None:
        if self._shown:
            text = bar(done, self._total, time.monotonic() - self._started)
            # A line that wraps could not be taken away again.
            sys.stderr.write("\r" + text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()


def bar(done: int, total: int, seconds: float) -> str:
    """How much is done, how fast, and how long the rest will take."""
    filled = WIDTH * done // total
    rate = done / seconds if seconds else 0.0
    left = f", {clock((total - done) / rate)} left" if rate else ""
    return f"[{'#' * filled:-<{WIDTH}}] {done}/{total}  {rate:.1f} images/s{left}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
