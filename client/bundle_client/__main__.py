"""Runs the command line of command.py, and exits cleanly when it is interrupted."""

import errno
import os
import signal
import sys
from collections.abc import Sequence

FAILED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141
# Behind standard output.
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    try:
        # From here on Ctrl-C ends it without a traceback; it may have been held back until now. An
        # exception in the middle of an import may be shown and lost, and nothing is begun yet.
        by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if by_default:
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        if sys.stderr is None:  # closed
            sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        from .command import run

        if by_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        forget_output()
        return BROKEN_PIPE
    except OSError as exc:
        if exc.errno not in DISK_FAULTS:
            raise
        forget_output()
        print(f"error: the answers cannot be written: {exc.strerror}", file=sys.stderr)
        return FAILED


def forget_output() -> None:
    """What is left in the buffer would fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    exit_code = main()
    # Nothing is left to do, and requests in flight must not delay the exit.
    os._exit(exit_code)
