"""The Unix sockets between the processes of one server; only their owner can reach them.

folder(run_dir) / GRPC        Triton's gRPC, to which it appends the port itself
target(folder(run_dir))       the same, as gRPC clients want it
"""

import os
import shutil
import socket
import stat
import tempfile
from contextlib import closing
from pathlib import Path

GRPC = "grpc:1"  # Triton appends the port only to this one
METRICS = "metrics"
HTTP = "http"
STREAMS = "streams"
ENVOY_ADMIN = "envoy-admin"
# To other servers' doors, by way of Envoy.
OTHERS = "others"
# What the Python steps tell the door, and the variable that names the socket to them.
STEPS, STEPS_VARIABLE = "steps", "BUNDLE_STEP_REPORTS"
# What the further processes of the HTTP service tell the first one, of which each has its own HTTP
# and STEPS; and files that they, and Envoy's threads, share.
TOLD = "told"
LOAD, ROOM = "load", "room"
LEAVING = "envoy-leaves"  # a file, by which Envoy is told that it is to end
TRITONS_HTTP = "triton-http"  # for the gate, which checks a candidate alone

USUAL = "sockets"
# Names the sockets' folder, if its path in `run_dir` would be too long.
ELSEWHERE, PREFIX = "sockets.path", "triton-bundle-"

# The kernel's sun_path, without its terminating zero.
LONGEST_PATH = 107
ANSWER_S = 5


class NotPrivate(RuntimeError):
    """The folder belongs to another user or is open to others; the message says what to do."""


def folder(run_dir: Path) -> Path:
    """The folder with the sockets of the server in `run_dir`, created if missing."""
    usual = run_dir.absolute() / USUAL
    if _fits(usual):
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _private(usual)
    return _elsewhere(run_dir / ELSEWHERE)


def of_process(name: str, number: int) -> str:
    """Of one of the door's processes; the first one's has no number."""
    return f"{name}.{number}" if number else name


def forget(run_dir: Path) -> None:
    """Removes the folder; no server runs there any more. What is in `run_dir` may be given to
    another user, under whom a container runs."""
    shutil.rmtree(run_dir / USUAL, ignore_errors=True)
    note = run_dir / ELSEWHERE
    if (noted := _read_noted(note)) and _is_private(noted):  # else somebody wrote another's name
        shutil.rmtree(noted, ignore_errors=True)
    note.unlink(missing_ok=True)


def target(sockets: Path) -> str:
    """Triton's gRPC socket in the syntax of gRPC clients."""
    return f"unix:{sockets / GRPC}"


def is_listening(at: Path) -> bool:
    """Whether somebody can be reached there."""
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(ANSWER_S)
        try:
            probe.connect(str(at))
        except TimeoutError:
            return True  # it is busy
        except OSError:
            return False
    return True


def _fits(sockets: Path) -> bool:
    longest = max((GRPC, METRICS, HTTP, STREAMS, ENVOY_ADMIN, STEPS, TRITONS_HTTP), key=len)
    return len(os.fsencode(sockets / longest)) <= LONGEST_PATH


def _elsewhere(note: Path) -> Path:
    """A folder with a short name, recorded in `note`."""
    if noted := _read_noted(note):
        return _private(noted)
    # Created with mode 0700 and an unpredictable name; not in XDG_RUNTIME_DIR, which is removed
    # when its user logs out.
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    note.parent.mkdir(parents=True, exist_ok=True)
    unfinished = note.with_suffix(".new")
    unfinished.write_text(str(made))
    unfinished.replace(note)
    return made


def _read_noted(note: Path) -> Path | None:
    """The folder, if it is one that was made here: it is removed with all that is in it."""
    try:
        noted = Path(note.read_text())
        return noted if noted.name.startswith(PREFIX) and noted.is_dir() else None
    except (OSError, ValueError):
        return None


def _private(sockets: Path) -> Path:
    if not _is_private(sockets):
        raise NotPrivate(
            f"{sockets} must be a folder that only this user can open; remove it and start again"
        )
    return sockets


def _is_private(sockets: Path) -> bool:
    found = sockets.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and not stat.S_IMODE(found.st_mode) & 0o077
