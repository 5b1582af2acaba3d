"""A certificate for the door, where nobody gave one: made by openssl, and by nobody vouched for.

What it made it makes anew when it ends soon, or is to have other names. A certificate that somebody
else put there is left alone. Before a container with the door starts, this program makes one if the
door needs it, and reports what else is missing:

python -m bundle_door.access.certificate
"""

import ipaddress
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from bundle_door.settings import read_several
from bundle_serving.process.exposure import CERTIFICATE, PRIVATE_KEY, Exposure, of_environment

ALWAYS = ("localhost", "127.0.0.1", "::1")
DAYS, SOON_S = 825, 30 * 24 * 3600
# Beside a certificate that was made here: its names.
NAMES = "names"
# By their digests, those that a balancer's servers show: the newest, and the one before.
OF_SERVERS = "SERVERS_CERTIFICATES"
# A container cannot see at which address other machines reach its host.
SHOWN_HOST = "SHOWN_HOST"


class NoCertificate(RuntimeError):
    """None can be made; the message says why and what to do."""


def ensure_if_needed(exposure: Exposure, names: Iterable[str], shown: str) -> bool:
    """Whether one was made."""
    if not exposure.is_guarded or exposure.certified:
        return False
    return ensure(exposure.tls_folder, names, shown)


def list_names(bind: str, hosts: Iterable[str]) -> list[str]:
    """Those that others may use for it; 0.0.0.0 is not one."""
    named = [] if bind in ("0.0.0.0", "::") else [bind]
    return [*named, *hosts]


def ensure(folder: Path, names: Iterable[str], shown: str = "") -> bool:
    """Whether one was made. The address that people are shown is in it if it is made anyway: a
    change of address alone is no reason for clients to trust another one."""
    wanted = "\n".join(dict.fromkeys((*ALWAYS, *names))) + "\n"
    if (folder / CERTIFICATE).exists() and not _is_outdated(folder, wanted):
        if ended := explain_end(folder / CERTIFICATE):
            raise NoCertificate(f"{ended}; set TLS_CERT to a renewed one, or remove that file")
        return False
    folder.mkdir(parents=True, exist_ok=True)
    _make(folder, dict.fromkeys((*wanted.split(), *shown.split())))
    (folder / NAMES).write_text(wanted)
    return True


def _is_outdated(folder: Path, wanted: str) -> bool:
    if not (folder / NAMES).exists():  # somebody else's
        return False
    if (folder / NAMES).read_text() != wanted:
        return True
    check = ("x509", "-noout", "-checkend", str(SOON_S), "-in", str(folder / CERTIFICATE))
    return _openssl(*check).returncode != 0


def _make(folder: Path, names: Iterable[str]) -> None:
    unfinished = {name: folder / f".{name}.new" for name in (CERTIFICATE, PRIVATE_KEY)}
    made = _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", str(DAYS), "-subj", "/CN=triton-bundle"),
        *("-addext", f"subjectAltName={','.join(map(_alternative, names))}"),
        *("-addext", "extendedKeyUsage=serverAuth"),
        *("-keyout", str(unfinished[PRIVATE_KEY]), "-out", str(unfinished[CERTIFICATE])),
    )
    if made.returncode:
        message = (made.stderr.strip().splitlines() or ["no message"])[0]
        raise NoCertificate(
            f"openssl cannot create a certificate ({message}); set TLS_CERT and TLS_KEY"
        )
    unfinished[CERTIFICATE].chmod(0o644)  # in a container its reader is another user
    (folder / NAMES).write_text("")  # what a kill leaves from here on is made anew
    for name, file in unfinished.items():
        file.replace(folder / name)


def _alternative(name: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def names_in(certificate: Path) -> list[str]:
    """Whom it is for, as it says."""
    shown = _openssl("x509", "-noout", "-ext", "subjectAltName", "-in", str(certificate))
    entries = shown.stdout.partition("\n")[2].split(",")
    return [entry.strip().partition(":")[2] for entry in entries if ":" in entry]


def ends(certificate: Path) -> float | None:
    """When, in seconds since 1970; None if it cannot be told."""
    with suppress(NoCertificate):  # without openssl, which TLS_CERT does not need
        shown = _openssl("x509", "-noout", "-enddate", "-in", str(certificate))
        _, _, date = shown.stdout.strip().partition("=")
        return ssl.cert_time_to_seconds(date) if date else None
    return None


def explain_end(certificate: Path, soon_s: float = 0) -> str:
    """That it has ended, or will soon; empty if not."""
    end, now = ends(certificate), time.time()
    if not end or end > now + soon_s:
        return ""
    day = time.strftime("%d %b %Y", time.gmtime(end))
    return f"{certificate} {'ended' if end < now else 'ends'} on {day}"


def _openssl(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        # Without the umask the private key would be everyone's to read for a moment.
        return subprocess.run(["openssl", *words], capture_output=True, text=True, umask=0o077)
    except FileNotFoundError:
        raise NoCertificate(
            "openssl is needed to create a certificate; install it, or set TLS_CERT and TLS_KEY"
        ) from None


def main() -> int:
    exposure = of_environment()
    names = list_names(exposure.bind, read_several(os.environ.get("ALLOWED_HOSTS", "")))
    try:
        if ensure_if_needed(exposure, names, os.environ.get(SHOWN_HOST, "")):
            print(f"- created a self-signed certificate in {exposure.tls_folder}", flush=True)
        problem = exposure.problem()
    except NoCertificate as fault:
        problem = str(fault)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
