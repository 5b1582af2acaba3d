"""What `make help` prints. Stdlib only."""

from __future__ import annotations

import os
import sys

from scripts.base.errors import run_guarded
from scripts.base.text import fold
from scripts.program.verbs import group, read_all

NAME, INDENT = 12, " " * 20


def main() -> int:
    everything = bool(os.environ.get("ALL"))
    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else sys.maxsize
    for part, verbs in group(read_all().values(), everything).items():
        print(f"\n{part}")
        for verb in verbs:
            line = fold(f"  make {verb.name:{NAME}} {verb.about}", width or 80, INDENT)
            print(
                line.replace(f"make {verb.name}", f"\033[1mmake {verb.name}\033[0m", 1)
                if is_terminal
                else line
            )
    if not everything:
        print("\nThe others: make help ALL=1")
    return 0


if __name__ == "__main__":
    sys.exit(run_guarded(main))
