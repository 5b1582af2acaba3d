"""To whom a server is open: beyond this machine only with TLS and API keys, or if asked for."""

import hashlib
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from bundle_serving.address import PEM_END

CERTIFICATE, PRIVATE_KEY = "cert.pem", "key.pem"
# What may name them to a program that has no options for it.
TLS_FOLDER, API_KEYS = "TLS_FOLDER", "API_KEYS"


@dataclass(frozen=True)
class Exposure:
    # The address under which others reach the ports; in a container not the one listened on.
    bind: str = "127.0.0.1"
    insecure: bool = False
    # A certificate was given: then TLS everywhere.
    certified: bool = False
    tls_folder: Path = Path("tls")
    key_file: Path = Path("api.keys")
    # Names, beside addresses and localhost, that requests may be sent to.
    hosts: tuple[str, ...] = ()
    # Whose pages may ask.
    origins: tuple[str, ...] = ()

    @property
    def is_guarded(self) -> bool:
        """Whether other machines can reach it, and strangers are to be kept out."""
        return not (self.insecure or is_loopback(self.bind))

    @property
    def certificate(self) -> Path | None:
        """Where the ports speak TLS."""
        return self.tls_folder / CERTIFICATE if self.is_guarded or self.certified else None

    @property
    def private_key(self) -> Path:
        return self.tls_folder / PRIVATE_KEY

    @property
    def api_keys(self) -> Path | None:
        """Where requests need one."""
        return self.key_file if self.is_guarded else None

    def problem(self) -> str | None:
        """Why the ports must not be opened so; None where they may."""
        return self.without_keys() or self.without_certificate()

    def without_keys(self) -> str | None:
        if not self.api_keys or (self.api_keys.is_file() and self.api_keys.stat().st_size):
            return None
        return (
            f"BIND={self.bind} opens the server to other machines, and nobody has an API key;"
            " add one: make keys ADD=ann, or without make: docker compose run --rm -e ADD=ann keys"
            " (or let anyone ask, unencrypted: INSECURE=1)"
        )

    def without_certificate(self) -> str | None:
        for file in (self.certificate, self.private_key) if self.certificate else ():
            if not os.access(file, os.R_OK):
                return f"{file} cannot be read; make up puts it there"
        return None


def of_environment() -> Exposure:
    """As the environment of the server's container says."""
    return Exposure(
        bind=os.environ.get("BIND") or "127.0.0.1",
        insecure=os.environ.get("INSECURE") == "1",
        certified=bool(os.environ.get("TLS_CERT")),
        tls_folder=Path(os.environ.get(TLS_FOLDER, "")),
        key_file=Path(os.environ.get(API_KEYS, "")),
    )


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def compute_digest(certificate: Path) -> str:
    """Of the first in the file, as Envoy knows it."""
    shown, end, _ = certificate.read_text().partition(PEM_END)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown + end)).hexdigest()
