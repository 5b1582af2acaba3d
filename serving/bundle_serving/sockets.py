"""The Unix sockets between the processes of one server; only their owner can reach them.

folder(run_dir) / GRPC        Triton's gRPC, to which it appends the port itself
target(folder(run_dir))       the same, as gRPC clients want it
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

GRPC = "grpc:1"  # Triton appends the port to this one alone
METRICS = "metrics"
HTTP = "http"
STREAMS = "streams"
ENVOY_ADMIN = "envoy-admin"
TRITONS_HTTP = "triton-http"  # where a candidate is proved, and nobody else asks

# Says where the folder lies, if its path would be too long in `run_dir`.
ELSEWHERE = "sockets.path"

# sun_path of the kernel, less the zero that ends it.
LONGEST_PATH = 107


class NotPrivate(RuntimeError):
    """The folder belongs to somebody else or is open to others; the message says what to do."""


def folder(run_dir: Path) -> Path:
    """The folder of the sockets of the server that runs in `run_dir`, made where it is missing."""
    usual = run_dir.absolute() / "sockets"
    if _fits(usual):
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _private(usual)
    return _elsewhere(run_dir / ELSEWHERE)


def forget(run_dir: Path) -> None:
    """Removes the folder where it lies outside of `run_dir`, in which no server runs any more."""
    note = run_dir / ELSEWHERE
    if note.exists():
        shutil.rmtree(note.read_text(), ignore_errors=True)
        note.unlink()


def target(sockets: Path) -> str:
    """Triton's gRPC, as gRPC clients name a Unix socket."""
    return f"unix:{sockets / GRPC}"


def _fits(sockets: Path) -> bool:
    longest = max((GRPC, METRICS, HTTP, STREAMS, ENVOY_ADMIN, TRITONS_HTTP), key=len)
    return len(os.fsencode(sockets / longest)) <= LONGEST_PATH


def _elsewhere(note: Path) -> Path:
    """A folder with a short name, which is kept in `note`."""
    if note.exists() and (noted := Path(note.read_text())).is_dir():
        return _private(noted)
    # Made with mode 0700, under a name that nobody can foresee.
    made = Path(tempfile.mkdtemp(prefix="triton-bundle-", dir=os.environ.get("XDG_RUNTIME_DIR")))
    note.parent.mkdir(parents=True, exist_ok=True)
    unfinished = note.with_suffix(".new")
    unfinished.write_text(str(made))
    unfinished.replace(note)
    return made


def _private(sockets: Path) -> Path:
    found = sockets.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or stat.S_IMODE(found.st_mode) & 0o077:
        raise NotPrivate(
            f"{sockets} must be a folder that only this user can open; remove it and start again"
        )
    return sockets
