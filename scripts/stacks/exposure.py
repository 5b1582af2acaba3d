"""To whom the server's ports are open, and how commands reach it there. Imports nothing large, for
every command needs it."""

import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from bundle_door.access import certificate
from bundle_serving import own_requests
from bundle_serving.address import Address
from bundle_serving.process.exposure import API_KEYS, TLS_FOLDER, Exposure
from scripts.base import files, ports
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import DOOR, Settings, names
from scripts.stacks import admin_key

FOLDER = ROOT / "build" / "tls"
KEYS = ROOT / "build" / "key" / "api.keys"
# Some other machine, for a server that is bound to every address of a kind.
ELSEWHERE = {
    "0.0.0.0": (socket.AF_INET, "192.0.2.1"),
    "::": (socket.AF_INET6, "2001:db8::1"),
}


def exposure_of(settings: Settings) -> Exposure:
    return Exposure(
        bind=settings.bind,
        insecure=bool(settings.insecure),
        certified=settings.tls_cert is not None,
        tls_folder=FOLDER,
        key_file=KEYS,
    )


def require_keys(settings: Settings) -> None:
    """Before anything is built."""
    ports.require_own(settings.bind)
    if problem := exposure_of(settings).without_keys():
        raise UserError.from_fault(problem)


def environment(settings: Settings) -> dict[str, str]:
    """The variables that a door of the local flavour reads."""
    of_the_door = {name: settings[name] for name in names(DOOR)}
    return of_the_door | {"BIND": settings.bind, TLS_FOLDER: str(FOLDER), API_KEYS: str(KEYS)}


def mark(settings: Settings) -> str:
    """Another one where the certificate is another one."""
    shown = exposure_of(settings).certificate
    return files.sha256(shown) if shown and shown.exists() else ""


def address(settings: Settings, port: int) -> Address:
    """Where commands ask on this machine."""
    exposure = exposure_of(settings)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.bind, settings.bind)
    # The door takes the admin key for an API key, and counts no request that has it; but
    # pictures are asked without it, too.
    try:
        key = admin_key.load()
    except UserError:
        if exposure.api_keys:
            raise
        key = ""
    api_key, own_id = key if exposure.api_keys else "", own_requests.id_of(key) if key else ""
    return Address(host, port, exposure.certificate, api_key, own_id=own_id)


def find_shown_host(bind: str) -> str:
    """This machine's own address, if it is open to others at any; empty if at a certain one."""
    if bind not in ELSEWHERE:
        return ""
    family, address = ELSEWHERE[bind]
    # Of a machine without a network, there is none.
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((address, 9))  # nothing is sent: the kernel says where it would go from
        return str(asked.getsockname()[0])
    return ""


@cache
def name_in(shown: Path) -> str:
    """One that a certificate is for, whatever address it is met at."""
    for name in certificate.names_in(shown):
        return name.replace("*", "any")
    raise UserError(f"{shown} names no host", "set TLS_CERT to a certificate that does")
