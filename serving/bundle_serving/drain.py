"""Ends a server's connections without a request lost, when nothing new comes to it any more.

python -m bundle_serving.drain /run/triton
"""

import asyncio
import re
import sys
import time
from pathlib import Path

from bundle_serving.process import sockets
from bundle_serving.protocol import local_http

# Seconds that connections get to end with their next answer, and requests to be answered.
IDLE_S, REQUESTS_S = 8, 20
ACTIVE = "/stats?filter=^http.*downstream_(cx|rq)_active"


def count_threads(run_dir: Path) -> int:
    """Of Envoy."""
    return int(_ask(run_dir, "GET", "/stats?filter=^server.concurrency$").rpartition(": ")[2])


def announce_end(run_dir: Path) -> None:
    """From now on each connection ends with its next answer."""
    _ask(run_dir, "POST", "/drain_listeners?graceful")


def close_ports(run_dir: Path) -> None:
    _ask(run_dir, "POST", "/drain_listeners")


def wait_for_end(run_dir: Path) -> None:
    """Of all connections; those on which nothing comes are not waited for as long as requests."""
    began = time.monotonic()
    while (past := time.monotonic() - began) < REQUESTS_S:
        counts = re.findall(
            r"^http\.(?!admin).*_(cx|rq)_active: (\d+)",
            _ask(run_dir, "GET", ACTIVE),
            re.MULTILINE,
        )
        active = {kind for kind, count in counts if int(count)}
        if not active or (past > IDLE_S and "rq" not in active):
            return
        time.sleep(0.05)


def _ask(run_dir: Path, method: str, path: str) -> str:
    admin = sockets.folder(run_dir) / sockets.ENVOY_ADMIN
    return asyncio.run(local_http.ask(admin, method, path)).decode()


if __name__ == "__main__":
    announce_end(Path(sys.argv[1]))
    wait_for_end(Path(sys.argv[1]))
