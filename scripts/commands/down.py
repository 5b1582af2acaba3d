"""Stops the server; what was exported stays for the next start.

make down
"""

from __future__ import annotations

import sys

from scripts.base import lock
from scripts.base.errors import guarded
from scripts.server.stop import stop_server


def main() -> int:
    with lock.one_at_a_time():
        stop_server()
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
