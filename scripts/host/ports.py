"""Are the ports free, and if not, who holds them?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

import psutil

from scripts.errors import UserError
from scripts.host.settings import PORTS, Settings


def holder(address: str, port: int) -> str | None:
    """None when the port is free; else who listens there, as far as that can be seen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            return None
        except PermissionError:
            return "the system (ports below 1024 are root's)"
        except OSError as fault:
            if fault.errno == errno.EADDRNOTAVAIL:
                raise UserError(
                    f"BIND={address} is no address of this machine", "use 127.0.0.1 or 0.0.0.0"
                ) from None
    return _process(port) or "another program (of another user, or in a container)"


def _process(port: int) -> str | None:
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


def require_free(settings: Settings, names: Sequence[str] = PORTS, command: str = "up") -> None:
    for setting in names:
        port = int(settings[setting])
        who = holder(settings["BIND"], port)
        if who:
            raise UserError(
                f"port {port} is taken by {who}",
                f"stop that, or choose another port: make {command} {setting}={port + 100}",
            )
