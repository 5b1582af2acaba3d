"""Checks that ports are free, or says who holds them; finds free ports for short-lived servers."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from scripts.base.errors import UserError

# Below the kernel's ephemeral ports: a client could take one of those before the server does.
CANDIDATES = range(20_000, 30_000)
# Those below are root's alone.
LOWEST, HIGHEST = 1024, 65535
UNSEEN = "another program (another user's, or in a container)"


def holder(address: str, port: int, by_engine: bool = False) -> str | None:
    """None when the port is free; otherwise who listens there, as far as that is visible.
    `by_engine`: Docker's, which runs as root, is to open it."""
    not_ours = UserError(
        f"BIND={address} is not an address of this machine",
        "use 127.0.0.1, or 0.0.0.0 (:: with IPv6)",
    )
    try:
        is_six = ipaddress.ip_address(address).version == 6
    except ValueError:  # a name, which Envoy does not take
        raise not_ours from None
    with socket.socket(socket.AF_INET6 if is_six else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            return None
        except PermissionError:
            return _listener(port) if by_engine else "the system (ports below 1024 are root's)"
        except OSError as fault:
            if fault.errno == errno.EADDRNOTAVAIL:
                raise not_ours from None
    return _listener(port) or UNSEEN


def require_own(address: str) -> None:
    """Refuses an address that is not this machine's."""
    holder(address, 0)


def _listener(port: int) -> str | None:
    import psutil  # missing in the containers that run steps, which only look for free ports

    try:
        for connection in psutil.net_connections("tcp"):
            here = connection.laddr
            if connection.status == psutil.CONN_LISTEN and here and here.port == port:
                if connection.pid is None:
                    return UNSEEN
                return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return None


def require_free(
    address: str, wanted: Mapping[str, int], command: str = "up", by_engine: bool = False
) -> None:
    """`wanted` maps the name of a setting to its port."""
    for setting, port in wanted.items():
        who = holder(address, port, by_engine)
        if who:
            raise UserError(
                f"port {port} is taken by {who}",
                f"stop it, or choose another port: make {command} {setting}={propose(port)}",
            )


def propose(port: int) -> int:
    """Another one, which anybody may open."""
    return port + (8000 if port < LOWEST else 100 if port + 100 <= HIGHEST else -100)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(CANDIDATES)
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
        return found
