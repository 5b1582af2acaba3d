"""Expected failures: one line with the cause and the remedy, and no traceback. Stdlib only."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.base import interrupts
from scripts.base.paths import ROOT
from scripts.base.text import as_called, fold, printable

# What the machine refuses, wherever it happens, and the remedy.
ROOM = "make room (make prune shows what can go), then run it again"
NO_TEMPORARY = "No usable temporary directory"  # tempfile's words, of a full disk too
OTHER = "name another one, in a folder of yours"
OF_THE_MACHINE = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EROFS: "run it in a copy of the project on a disk that can be written to",
    errno.EMFILE: "raise the limit (ulimit -n 4096), then run it again",
    errno.ENFILE: "close other programs, or raise fs.file-max, then run it again",
    errno.E2BIG: "name their folder, or fewer files at a time",
    errno.ENAMETOOLONG: OTHER,
    errno.ENOTDIR: OTHER,
    errno.EEXIST: OTHER,  # a file, where a folder is to be
    errno.EACCES: "run it as the user who owns that file, or take all back: "
    f"sudo chown -R $USER {shlex.quote(str(ROOT))}",
}
# What the Docker SDK and its engine say of it.
ASKED_WRONGLY, BAD_REQUEST = ("NullResource", "InvalidArgument", "InvalidRepository"), 400


class UserError(Exception):
    """Something the user can fix; `remedy` says how."""

    exit_code = 1

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy

    @classmethod
    def from_fault(cls, fault: object, remedy: str = "") -> UserError:
        """From one line of another package: "cause; remedy"."""
        *cause, last = str(fault).rsplit("; ", 1)
        return cls(cause[0], last) if cause else cls(last, remedy)


class WrongWord(UserError):
    """What was typed is no command, option or setting."""

    exit_code = 2


class NoWeights(UserError):
    """The requested weights are not available here."""

    exit_code = 3


class AlreadyReported(UserError):
    """A child process failed and has printed its own line."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("", "")
        self.exit_code = exit_code


def run_guarded(main: Callable[[], int | None]) -> int:
    """Runs a command's main, which returns an exit code if that says something; the only place
    where an expected failure becomes one line."""
    try:
        with interrupts.raise_interrupts():
            return main() or 0
    except AlreadyReported as fault:
        return fault.exit_code
    except UserError as fault:
        _tell(fault)
        return fault.exit_code
    except KeyboardInterrupt as interrupt:
        return _end_interrupted(interrupt)
    except BrokenPipeError:
        # What is left in the buffers would fail again when Python exits.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for output in (1, 2):
            os.dup2(nowhere, output)
        return 0
    except Exception as fault:
        if refused := of_the_machine(fault):
            _tell(refused)
            return refused.exit_code
        # In the middle of an import, Python and its libraries make another exception of it.
        if interrupts.has_come():
            return _end_interrupted(KeyboardInterrupt())
        raise


@contextmanager
def reword_faults(cause: str, remedy: str) -> Iterator[None]:
    """Of other packages, whose exceptions are of many kinds: in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as fault:
        message = " ".join(str(fault).split()).partition(". ")[0][:200]
        raise of_the_machine(fault) or UserError(f"{cause}: {message}", remedy) from None


def _end_interrupted(interrupt: KeyboardInterrupt) -> int:
    """Which may say what became of the work."""
    interrupts.ignore_to_the_end()
    became = as_called(str(interrupt)) or "partial work was discarded"
    print(f"interrupted; {became}", file=sys.stderr)
    return interrupts.INTERRUPTED


def _tell(fault: UserError) -> None:
    line = printable(f"error: {fault.cause}; {as_called(fault.remedy)}").replace("\n", "\\n")
    if sys.stderr.isatty():
        line = fold(line, os.get_terminal_size(sys.stderr.fileno()).columns or 80)
    print(line, file=sys.stderr)


def of_the_machine(fault: BaseException | None) -> UserError | None:
    """A full disk, say, which other packages report in an exception of their own, with or without
    the system's number."""
    outermost = fault
    while fault:
        if type(fault).__name__ == "AccessDenied":  # psutil's
            return UserError("the server belongs to another user", "run it as that user")
        for number, remedy in OF_THE_MACHINE.items():
            message = os.strerror(number)
            if getattr(fault, "errno", None) == number or message.lower() in str(fault).lower():
                file = getattr(fault, "filename2", None) or getattr(fault, "filename", None)
                cause = f"{file}: {message.lower()}" if file else message.lower()
                if number == errno.ENOSPC:
                    cause += _describe_disk(file)
                return UserError(cause, remedy)
        if NO_TEMPORARY in str(fault):
            cause = "no folder takes temporary files" + _describe_disk(None)
            return UserError(cause, f"{ROOM}; or name a folder elsewhere: TMPDIR=")
        fault = fault.__cause__ or fault.__context__
    if outermost and _is_of_docker(outermost):
        return UserError(
            f"Docker refuses or does not answer ({outermost})",
            "run it again; make doctor shows whether Docker is well",
        )
    return None


def refuse_place(place: Path, fault: OSError) -> UserError:
    """That the user has named to write to."""
    return of_the_machine(fault) or UserError(f"{place}: {fault.strerror}", OTHER)


def _is_of_docker(fault: BaseException) -> bool:
    """Its SDK lets pass what it meets while the engine ends, hangs, or has lost a container. What
    is asked of it wrongly is a fault of ours."""
    if type(fault).__name__ in ASKED_WRONGLY or getattr(fault, "status_code", 0) == BAD_REQUEST:
        return False
    if not isinstance(fault, OSError):  # as those of requests are
        return type(fault).__module__ == "docker.errors"
    import traceback  # only for faults

    frames = traceback.walk_tb(fault.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith("docker.") for frame, _ in frames)


def _describe_disk(file: object) -> str:
    """Of this file, or the fuller of those that commands write to. What was begun is gone by now,
    so that some of it may be free again."""
    import shutil  # only then, for every command imports this file

    # Not as tempfile finds it: by writing a file there.
    places = [ROOT / "build", Path(os.environ.get("TMPDIR") or "/tmp")]
    if isinstance(file, str | Path):
        places = [Path(file)]
    disks = {_find_disk(place): shutil.disk_usage(_find_disk(place)) for place in places}
    disk, usage = min(disks.items(), key=lambda each: each[1].free)
    return f" (the disk at {disk} has {usage.free >> 20} MB left of {usage.total >> 20})"


def _find_disk(path: Path) -> Path:
    path = path.absolute()
    while not path.is_mount():  # as the root is
        path = path.parent
    return path
