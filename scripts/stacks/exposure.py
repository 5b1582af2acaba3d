"""To whom the server's ports are open, and what that takes: a certificate, API keys."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

from bundle_door import certificate, prepare
from bundle_serving.address import Address
from bundle_serving.exposure import API_KEYS, CERTIFICATE, PRIVATE_KEY, TLS_FOLDER, Exposure
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import DOOR, Settings
from scripts.settings.settings import names as names_of
from scripts.stacks import admin_key

FOLDER = ROOT / "build" / "tls"
KEYS = ROOT / "build" / "key" / "api.keys"


def of(wished: Settings) -> Exposure:
    return Exposure(
        bind=wished.bind,
        insecure=bool(wished.insecure),
        certified=wished.tls_cert is not None,
        tls_folder=FOLDER,
        key_file=KEYS,
    )


def place_certificate(wished: Settings) -> None:
    """The user's own, where the door reads it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    given = {CERTIFICATE: wished.tls_cert, PRIVATE_KEY: wished.tls_key}
    if not any(given.values()):
        return
    for name, source in given.items():
        if source is None:
            raise UserError("TLS needs a certificate and its key", "set TLS_CERT and TLS_KEY")
        _place(source, FOLDER / name, mode=0o644 if name == CERTIFICATE else 0o600)
    (FOLDER / certificate.NAMES).unlink(missing_ok=True)


def _place(source: Path, target: Path, mode: int) -> None:
    try:
        content = source.read_text()
    except (OSError, ValueError) as fault:
        raise UserError(
            f"{source} cannot be read ({getattr(fault, 'strerror', 'it is no text')})",
            "set TLS_CERT and TLS_KEY to PEM files",
        ) from None
    if "-----BEGIN" not in content:
        raise UserError(f"{source} is no PEM file", "set TLS_CERT and TLS_KEY to PEM files")
    if not target.exists() or target.read_text() != content:
        files.write(target, content, mode)


def make_certificate(wished: Settings) -> None:
    """Where the door needs one and nobody gave one."""
    try:
        if prepare.prepared(of(wished), names(wished)):
            console.note(
                f"a new certificate is in {FOLDER.relative_to(ROOT)}, signed by itself: clients"
                " need cert.pem to trust it"
            )
    except certificate.NoCertificate as fault:
        raise UserError(*_parts(str(fault))) from None


def names(wished: Settings) -> list[str]:
    """That the certificate is for, beside this machine's own."""
    return [socket.gethostname(), *prepare.names(wished.bind, wished.allowed_hosts)]


def require_keys(wished: Settings, has_door: bool = True) -> None:
    """Before anything is built."""
    exposure = of(wished)
    if exposure.guarded and not has_door:
        raise UserError(
            f"BIND={wished.bind} opens the server to other machines, and on this flavour it has"
            " neither TLS nor API keys",
            "put a proxy with both in front; to let anyone ask, unencrypted: INSECURE=1",
        )
    if problem := exposure.without_keys():
        raise UserError(*_parts(problem))


def _parts(problem: str) -> tuple[str, str]:
    cause, _, remedy = problem.partition("; ")
    return cause, remedy


def told(wished: Settings) -> dict[str, str]:
    """What a door of the local flavour is told by its environment."""
    of_the_door = {name: wished[name] for name in names_of(DOOR)}
    return of_the_door | {"BIND": wished.bind, TLS_FOLDER: str(FOLDER), API_KEYS: str(KEYS)}


def mark(wished: Settings) -> str:
    """Another one where the certificate is another one."""
    shown = of(wished).certificate
    return files.sha256(shown) if shown and shown.exists() else ""


def address(wished: Settings, port: int) -> Address:
    """Where commands ask on this machine."""
    exposure = of(wished)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(wished.bind, wished.bind)
    # The door takes the admin key for an API key.
    key = admin_key.load() if exposure.api_keys else ""
    return Address(host, port, exposure.certificate, key)


@cache
def name_in(shown: Path) -> str:
    """One that a certificate is for, whatever address it is met at."""
    for name in certificate.names_in(shown):
        return name.replace("*", "any")
    raise UserError(f"{shown} names no host", "set TLS_CERT to a certificate that does")
