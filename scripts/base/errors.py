"""Expected failures: one line with the cause and the remedy, and no traceback. Stdlib only."""

from __future__ import annotations

import sys
from collections.abc import Callable

from scripts.base import interrupts
from scripts.base.text import printable


class UserError(Exception):
    """Something the user can fix; `remedy` says how."""

    exit_code = 1

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy

    @classmethod
    def of(cls, fault: object, remedy: str = "") -> UserError:
        """From one line of another package: "cause; remedy"."""
        *cause, last = str(fault).rsplit("; ", 1)
        return cls(cause[0], last) if cause else cls(last, remedy)


class NoWeights(UserError):
    """The requested weights are not available here."""

    exit_code = 3


class AlreadyReported(UserError):
    """A child process failed and has printed its own line."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("", "")
        self.exit_code = exit_code


def guarded(main: Callable[[], int]) -> int:
    """Runs a command's main; the only place where an expected failure becomes one line."""
    try:
        with interrupts.raised():
            return main()
    except AlreadyReported as fault:
        return fault.exit_code
    except UserError as fault:
        print(printable(f"error: {fault.cause}; {fault.remedy}"), file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        print("interrupted; partial work was discarded", file=sys.stderr)
        return interrupts.INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
