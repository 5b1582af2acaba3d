"""Keeps a program up, as Docker does with `restart: unless-stopped`: starts it afresh whenever it
ends, until it is told to stop itself.

    python -m scripts.server.embeddings_keeper COMMAND …
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from bundle_serving import leftovers

STOP_S = 20
# Of one that cannot start, the log shall stay short.
PAUSE_S = 0.5
STARTED_AFRESH = "it is restarted"


def main(command: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        program = subprocess.Popen(command)
        try:
            code = program.wait()
        finally:
            _end(program)
        print(f"exited with {code}: {STARTED_AFRESH}", file=sys.stderr, flush=True)
        time.sleep(PAUSE_S)


def _end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    with suppress(subprocess.TimeoutExpired):
        program.wait(STOP_S)
    program.kill()
    program.wait()
    leftovers.remove(f"pytrtion{program.pid}-")  # as PyTriton spells it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
