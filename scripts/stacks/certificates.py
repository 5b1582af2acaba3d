"""The certificate of the server's ports: the user's own, or one that is made here."""

import socket
import ssl
from pathlib import Path

from bundle_door.access import certificate
from bundle_door.access.certificate import explain_end
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import Settings
from scripts.stacks import exposure


def place(settings: Settings) -> None:
    """The user's own, where the door reads it."""
    exposure.FOLDER.mkdir(parents=True, exist_ok=True)
    if not (settings.tls_cert or settings.tls_key):
        return
    if not (settings.tls_cert and settings.tls_key):
        raise UserError("TLS needs a certificate and its key", "set TLS_CERT and TLS_KEY")
    given = {CERTIFICATE: _read(settings.tls_cert), PRIVATE_KEY: _read(settings.tls_key)}
    _require_pair(settings.tls_cert, settings.tls_key)
    for name, content in given.items():
        target = exposure.FOLDER / name
        if not target.exists() or target.read_text() != content:
            files.write(target, content, mode=0o644 if name == CERTIFICATE else 0o600)
    (exposure.FOLDER / certificate.NAMES).unlink(missing_ok=True)


def _read(source: Path) -> str:
    try:
        content = source.read_text()
    except (OSError, ValueError) as fault:
        raise UserError(
            f"{source} cannot be read ({getattr(fault, 'strerror', 'it is not text')})",
            "set TLS_CERT and TLS_KEY to PEM files",
        ) from None
    if "-----BEGIN" not in content:
        raise UserError(f"{source} is not a PEM file", "set TLS_CERT and TLS_KEY to PEM files")
    return content


def _require_pair(certificate: Path, key: Path) -> None:
    """Else the door would not open, and the server from before be gone."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as fault:
        raise UserError(
            f"{certificate} and {key} are no certificate with its key"
            f" ({getattr(fault, 'reason', None) or fault})",
            "set TLS_CERT and TLS_KEY to two that belong together; the key without a passphrase",
        ) from None
    if ended := explain_end(certificate):
        raise UserError(ended, "set TLS_CERT to a renewed one")


def make(settings: Settings) -> None:
    """Where the door needs one and nobody gave one."""
    try:
        given = exposure.exposure_of(settings), _list_names(settings)
        if certificate.ensure_if_needed(*given, exposure.find_shown_host(settings.bind)):
            console.note(
                f"created a self-signed certificate in {exposure.FOLDER.relative_to(ROOT)}; "
                "give clients its cert.pem to trust"
            )
    except certificate.NoCertificate as fault:
        raise UserError.from_fault(fault) from None


def list_options(settings: Settings) -> list[str]:
    """Of the container that makes it."""
    shown = exposure.find_shown_host(settings.bind)
    return [
        f"--env=ALLOWED_HOSTS={','.join(_list_names(settings))}",
        f"--env={certificate.SHOWN_HOST}={shown}",
    ]


def _list_names(settings: Settings) -> list[str]:
    """That the certificate is for, beside this machine's own."""
    return [socket.gethostname(), *certificate.list_names(settings.bind, settings.allowed_hosts)]
