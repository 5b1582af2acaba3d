"""Keeps a program running, like Docker's `restart: unless-stopped`: restarts it whenever it ends,
until the keeper itself is told to stop.

    python -m extensions.similar.service_keeper COMMAND …
"""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from bundle_serving.process import leftovers

STOP_S = 20
# Keeps the log short if it cannot start.
PAUSE_S = 0.5
RESTARTED = "restarting it"


def main(command: Sequence[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    while True:
        program = subprocess.Popen(command)
        try:
            code = program.wait()
        finally:
            _end(program)
        print(f"exited with {code}: {RESTARTED}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_S)


def _end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    with suppress(subprocess.TimeoutExpired):
        program.wait(STOP_S)
    program.kill()
    program.wait()
    leftovers.remove(f"pytrtion{program.pid}-")  # sic: PyTriton's spelling


if __name__ == "__main__":
    main(sys.argv[1:])
