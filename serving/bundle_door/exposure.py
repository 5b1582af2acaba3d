"""To whom the door is open: beyond this machine only with TLS and keys, or when told to be."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Exposure:
    # The address under which others reach the ports; in a container not the one listened on.
    bind: str
    tls_cert: Path | None = None
    tls_key: Path | None = None
    api_keys: Path | None = None
    # Names, beside addresses and localhost, that requests may be sent to.
    hosts: tuple[str, ...] = ()
    # Whose pages may ask.
    origins: tuple[str, ...] = ()
    insecure: bool = False

    def problem(self) -> str | None:
        """Why the door must not be opened so; None where it may."""
        if bool(self.tls_cert) != bool(self.tls_key):
            return "TLS needs both; set TLS_CERT and TLS_KEY"
        for file in (self.tls_cert, self.tls_key, self.api_keys):
            if file and not file.is_file():
                return f"{file} is not there; make it, or correct the setting that names it"
        if is_loopback(self.bind) or self.insecure or (self.tls_cert and self.api_keys):
            return None
        return (
            f"BIND={self.bind} opens the server to other machines without TLS and API keys;"
            " put a proxy with both in front, or allow it: INSECURE=1"
        )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
