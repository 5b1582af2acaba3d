"""Ports that nobody listens on, for servers that live a short while. Stdlib only."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

# Not of those that the kernel gives to connections: a client would take one before its server does.
BELOW = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = random.choice(BELOW)
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
        return found
