"""Checks that ports are free, or says who holds them; finds free ports for short-lived servers."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from bundle_serving.process.listeners import choose
from scripts.base.errors import UserError

# Below the kernel's ephemeral ports: a client could take one of those before the server does.
CANDIDATES = range(20_000, 30_000)
LISTENS = "0A"
# Those below are root's alone.
LOWEST, HIGHEST = 1024, 65535
# That a handshake takes, and at most that a busy server takes to accept.
HANDSHAKE_S, ACCEPTED_S = 0.3, 5
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


def is_shareable(address: str, port: int) -> bool:
    """Whether another server of this user may listen there beside the one that does."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def give_to_second(address: str, port: int, listeners: int) -> None:
    """Of two servers that share it, the one that listens later gets every new connection, and the
    first one, with so many listeners, accepts what has come to it: the kernel would end that with
    them."""
    with suppress(OSError):  # the kernel cannot, and decides by itself
        _choose(address, port, listeners)
    time.sleep(HANDSHAKE_S)
    deadline = time.monotonic() + ACCEPTED_S
    while _waiting(port) and time.monotonic() < deadline:
        time.sleep(0.01)


def _choose(address: str, port: int, number: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe, socket.socket(family) as third:
        for each in (probe, third):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:  # as Envoy's
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, address != "::")
        choose(probe, number)  # whether this kernel can: the third one listens with the others
        third.bind((address, port))
        third.listen()
        choose(third, number)


def _waiting(port: int) -> bool:
    """Whether a listener there has connections to accept."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):  # no IPv6 here
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, queues, *_ = line.split()
                waiting = int(queues.split(":")[1], 16)
                if state == LISTENS and local.endswith(f":{port:04X}") and waiting:
                    return True
    return False


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(CANDIDATES)
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
        return found
