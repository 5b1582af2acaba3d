"""Are the ports free, and if not, who holds them? And ports that nobody listens on, for servers
that live a short while."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from scripts.base.errors import UserError

# Not of those that the kernel gives to connections: a client would take one before its server does.
BELOW = range(20_000, 30_000)


def holder(address: str, port: int) -> str | None:
    """None when the port is free; else who listens there, as far as that can be seen."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            return None
        except PermissionError:
            return "the system (ports below 1024 are root's)"
        except OSError as fault:
            if fault.errno == errno.EADDRNOTAVAIL:
                raise UserError(
                    f"BIND={address} is not an address of this machine",
                    "use 127.0.0.1, or 0.0.0.0 (:: with IPv6)",
                ) from None
    return _process(port) or "another program (of another user, or in a container)"


def _process(port: int) -> str | None:
    import psutil  # the steps in containers find free ports, and do without it

    try:
        for connection in psutil.net_connections("tcp"):
            here = connection.laddr
            if connection.status == psutil.CONN_LISTEN and here and here.port == port:
                if connection.pid is None:
                    return None
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return None


def require_free(address: str, wanted: Mapping[str, int], command: str = "up") -> None:
    """`wanted` names the setting that each port comes from."""
    for setting, port in wanted.items():
        who = holder(address, port)
        if who:
            raise UserError(
                f"port {port} is taken by {who}",
                f"stop that, or choose another port: make {command} {setting}={port + 100}",
            )


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(BELOW)
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
        return found
