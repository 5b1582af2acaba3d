"""Redirecting output. Stdlib only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
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
