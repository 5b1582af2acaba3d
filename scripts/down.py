"""Stops the server; what was exported stays for the next start.

make down
"""

from __future__ import annotations

import sys

from scripts.embeddings import service
from scripts.errors import guarded
from scripts.host import console, flavour, lock, settings, state


def main() -> int:
    with lock.one_at_a_time():
        stop_server()
    return 0


def stop_server() -> None:
    known = state.load()
    if known:
        stacks = [flavour.stack(known.flavour, known.started_with)]
    else:  # with no record of what was started, every flavour may have left something
        stacks = [flavour.stack(name, settings.load()) for name in flavour.possible()]
    with console.waiting("stopping the server"):
        stopped = [stack.flavour for stack in stacks if stack.stop()]
        embeddings = service.stop()
    console.note(f"{' and '.join(stopped)} server stopped" if stopped else "no server was up")
    if embeddings:
        console.note("the service of embeddings is stopped")


if __name__ == "__main__":
    sys.exit(guarded(main))
