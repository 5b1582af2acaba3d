"""Stops the server; exports are kept for the next start.

make down
"""

from __future__ import annotations

from scripts.base import console, lock
from scripts.server import kept
from scripts.server.stop import stop_server


def main() -> int:
    with lock.one_at_a_time():
        stop_server()
        console.note(kept.summary())
    return 0
