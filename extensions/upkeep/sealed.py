"""The keys of this checkout, encrypted with a passphrase by openssl: the admin key, the hashes of
the clients' API keys, the certificate with its private key, and the one for which kept requests
are encrypted."""

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from bundle_door.watching.captures import CERTIFICATE
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.stacks import admin_key, exposure

FOLDERS = (admin_key.PATH.parent, exposure.FOLDER)
NAMES = ("admin.key", "api.keys", CERTIFICATE, "cert.pem", "key.pem", "names")
# Of API keys there are hashes alone, which a container's door reads as another user.
PRIVATE = ("admin.key", "key.pem")
DIGEST = hashlib.sha256().digest_size
CIPHER = ("enc", "-aes-256-cbc", "-pbkdf2", "-iter", "600000", "-md", "sha256")


def seal(passphrase: str) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for folder in FOLDERS:
            for path in (folder / name for name in NAMES):
                if path.is_file():
                    tar.add(path, str(path.relative_to(ROOT)))
    content = plain.getvalue()
    return _openssl(passphrase, content + hashlib.sha256(content).digest())


def unseal(keys: Mapping[Path, str]) -> None:
    """Puts them where they were."""
    for path, text in keys.items():
        files.write(path, text, 0o600 if path.name in PRIVATE else 0o644)


def open_sealed(sealed: bytes, passphrase: str) -> dict[Path, str]:
    """What is in it, and where that was; a wrong passphrase is refused, and what is damaged."""
    plain = _openssl(passphrase, sealed, "-d")
    content, digest = plain[:-DIGEST], plain[-DIGEST:]
    # A tar file is so many whole blocks; those of earlier bundles have no hash after them.
    if len(plain) % tarfile.BLOCKSIZE and hashlib.sha256(content).digest() != digest:
        raise _wrong()
    keys = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            for member in tar:
                path, file = ROOT / member.name, tar.extractfile(member)
                if path.parent in FOLDERS and path.name in NAMES and file:
                    keys[path] = file.read().decode()
    except (tarfile.TarError, ValueError):
        raise _wrong() from None
    return keys


def _openssl(passphrase: str, text: bytes, *words: str) -> bytes:
    """The passphrase goes through a pipe: arguments can be seen by everybody."""
    reading, writing = os.pipe()
    os.write(writing, os.fsencode(passphrase) + b"\n")
    os.close(writing)
    try:
        command = ["openssl", *CIPHER, *words, "-pass", f"fd:{reading}"]
        done = subprocess.run(command, input=text, capture_output=True, pass_fds=[reading])
    except FileNotFoundError:
        raise UserError(
            "openssl is needed to encrypt keys", "install it (apt-get install openssl)"
        ) from None
    finally:
        os.close(reading)
    if done.returncode:
        raise _wrong()
    return done.stdout


def _wrong() -> UserError:
    return UserError(
        "the keys cannot be decrypted with this passphrase, or are damaged",
        "set PASSPHRASE to the one of the backup, or leave it empty: make up creates new keys",
    )
