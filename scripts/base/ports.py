"""Checks that ports are free, or says who holds them; finds free ports for short-lived servers."""

from __future__ import annotations

import ctypes
import errno
import random
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from scripts.base.errors import UserError

# Below the kernel's ephemeral ports: a client could take one of those before the server does.
CANDIDATES = range(20_000, 30_000)
# From the kernel's headers: to choose among those who share a port, and "the one with this number".
SO_ATTACH_REUSEPORT_CBPF, BPF_RETURN = 51, 0x06
LISTENS = "0A"
# That a handshake takes, and at most that a busy server takes to accept.
HANDSHAKE_S, ACCEPTED_S = 0.3, 5


def holder(address: str, port: int) -> str | None:
    """None when the port is free; otherwise who listens there, as far as that is visible."""
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
    return _process(port) or "another program (another user's, or in a container)"


def require_own(address: str) -> None:
    """Refuses an address that is not this machine's."""
    holder(address, 0)


def _process(port: int) -> str | None:
    import psutil  # missing in the containers that run steps, which only look for free ports

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
    """`wanted` maps the name of a setting to its port."""
    for setting, port in wanted.items():
        who = holder(address, port)
        if who:
            raise UserError(
                f"port {port} is taken by {who}",
                f"stop it, or choose another port: make {command} {setting}={port + 100}",
            )


def is_shareable(address: str, port: int) -> bool:
    """Whether another server of this user may listen there beside the one that does."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


@contextmanager
def give_to_second(address: str, port: int) -> Iterator[None]:
    """Of two servers that share it, the one that listens later gets every new connection, and the
    first one accepts what has come to it: the kernel would end that with its listener."""
    with socket.socket() as third:
        with suppress(OSError):  # of IPv6, where the kernel decides by itself
            _choose_the_second(third, address, port)
        yield


def _choose_the_second(third: socket.socket, address: str, port: int) -> None:
    choice = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 1))
    program = struct.pack("HP", 1, ctypes.addressof(choice))
    with socket.socket() as probe:  # whether this kernel can: the third one listens with the others
        for each in (probe, third):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
    third.bind((address, port))
    third.listen()
    third.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program)
    time.sleep(HANDSHAKE_S)
    deadline = time.monotonic() + ACCEPTED_S
    while _waiting(port) and time.monotonic() < deadline:
        time.sleep(0.01)


def _waiting(port: int) -> bool:
    """Whether a listener there has connections to accept."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues, *_ = line.split()
        if state == LISTENS and local.endswith(f":{port:04X}") and int(queues.split(":")[1], 16):
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
