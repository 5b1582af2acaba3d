"""From one local server to another on the same ports, without a request lost: both listen there
(SO_REUSEPORT), and the one from before is drained."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, suppress
from http.client import HTTPException
from pathlib import Path

import psutil

from bundle_serving import over_socket, sockets
from bundle_serving.processes import family
from scripts.base import ports
from scripts.settings.settings import Settings

# Of what the server that runs has: what must be free for another one.
ROOM = 1.25
# Seconds that connections get to end with their next answer, and requests to be answered.
IDLE_S, REQUESTS_S, ANSWER_S = 8, 20, 5
ACTIVE = "/stats?filter=^http.*downstream_(cx|rq)_active"


def obstacle(settings: Settings, its: Settings, pid: int) -> str | None:
    """Why another server cannot come up beside the one with this process, and its settings."""
    shared = {*settings.ports.values()} & {*its.ports.values()}
    for port in shared:
        if not ports.is_shareable(settings.bind, port):
            return f"port {port} is not to be shared"
    needed, free = ROOM * _memory(pid), psutil.virtual_memory().available
    if needed > free:
        return f"two need {needed / 1e9:.1f} GB of memory more, and {free / 1e9:.1f} GB are free"
    return None


def _memory(pid: int) -> int:
    taken = 0
    for process in family(pid):
        with suppress(psutil.Error):
            taken += psutil.Process(process.pid).memory_full_info().pss
    return taken


def is_open(settings: Settings, pid: int) -> bool:
    """Whether this server listens on its ports, whoever else does."""
    opened: set[int] = set()
    for process in family(pid):
        if process.name == "envoy":
            with suppress(psutil.Error):
                found = psutil.Process(process.pid).net_connections("tcp")
                opened |= {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    return {*settings.ports.values()} <= opened


def drain(run_dir: Path, settings: Settings) -> None:
    """New connections come to the other server from now on; those that are open end with their next
    answer."""
    with suppress(OSError, HTTPException, sockets.NotPrivate):  # its door does not run
        admin = sockets.folder(run_dir) / sockets.ENVOY_ADMIN
        with ExitStack() as steered:
            for port in settings.ports.values():
                steered.enter_context(ports.give_to_second(settings.bind, port))
            _ask(admin, "POST", "/drain_listeners?graceful")
            _ask(admin, "POST", "/drain_listeners")
        began = time.monotonic()
        while (past := time.monotonic() - began) < REQUESTS_S:
            counts = re.findall(
                r"^http\.(?!admin).*_(cx|rq)_active: (\d+)",
                _ask(admin, "GET", ACTIVE),
                re.MULTILINE,
            )
            active = {kind for kind, count in counts if int(count)}
            if not active or (past > IDLE_S and "rq" not in active):
                return
            time.sleep(0.05)


def _ask(admin: Path, method: str, path: str) -> str:
    connection = over_socket.Connection(admin, timeout=ANSWER_S)
    try:
        connection.request(method, path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()
