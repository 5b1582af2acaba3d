"""Start the command line of command.py, and end it cleanly whenever it is broken off."""

import os
import sys
from collections.abc import Sequence

INTERRUPTED, BROKEN_PIPE = 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        # Ctrl-C may come as early as during this import.
        from .command import run

        return run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # What is still in the buffer would break the pipe again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


if __name__ == "__main__":
    exit_code = main()
    # Nothing is left to be done, and requests still under way should not delay the end.
    os._exit(exit_code)
