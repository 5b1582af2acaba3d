"""The certificate of the server's ports: the user's own, or one that is made here."""

from __future__ import annotations

import socket
from pathlib import Path

from bundle_door import certificate, prepare
from bundle_serving.exposure import CERTIFICATE, PRIVATE_KEY
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import Settings
from scripts.stacks import exposure


def place(settings: Settings) -> None:
    """The user's own, where the door reads it."""
    exposure.FOLDER.mkdir(parents=True, exist_ok=True)
    given = {CERTIFICATE: settings.tls_cert, PRIVATE_KEY: settings.tls_key}
    if not any(given.values()):
        return
    for name, source in given.items():
        if source is None:
            raise UserError("TLS needs a certificate and its key", "set TLS_CERT and TLS_KEY")
        _place(source, exposure.FOLDER / name, mode=0o644 if name == CERTIFICATE else 0o600)
    (exposure.FOLDER / certificate.NAMES).unlink(missing_ok=True)


def _place(source: Path, target: Path, mode: int) -> None:
    try:
        content = source.read_text()
    except (OSError, ValueError) as fault:
        raise UserError(
            f"{source} cannot be read ({getattr(fault, 'strerror', 'it is not text')})",
            "set TLS_CERT and TLS_KEY to PEM files",
        ) from None
    if "-----BEGIN" not in content:
        raise UserError(f"{source} is not a PEM file", "set TLS_CERT and TLS_KEY to PEM files")
    if not target.exists() or target.read_text() != content:
        files.write(target, content, mode)


def make(settings: Settings) -> None:
    """Where the door needs one and nobody gave one."""
    try:
        if prepare.prepared(exposure.of(settings), names(settings)):
            console.note(
                f"created a self-signed certificate in {exposure.FOLDER.relative_to(ROOT)}; "
                "give clients its cert.pem to trust"
            )
    except certificate.NoCertificate as fault:
        raise UserError.of(fault) from None


def names(settings: Settings) -> list[str]:
    """That the certificate is for, beside this machine's own."""
    return [socket.gethostname(), *prepare.names(settings.bind, settings.allowed_hosts)]
