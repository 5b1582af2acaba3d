"""Stops the server; exports are kept for the next start.

make down
"""

from scripts.base import console, lock
from scripts.server import stop


def main() -> None:
    with lock.one_at_a_time():
        stop.stop_server()
        console.note(stop.describe_kept())
