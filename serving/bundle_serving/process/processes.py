"""What /proc says about a process and its descendants; and so, what a killed server has left."""

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IS_STOPPED = "T"
STUB = "triton_python_backend_stub"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

# Triton's Python backend creates this folder at its start and removes it at its end; its place
# cannot be configured.
FOLDERS = "python_env_*"
BACKEND = "libtriton_python.so"
CLOCKS_S = 5  # that the file system's and the processes' clocks may differ by


@dataclass(frozen=True)
class Process:
    pid: int
    ticks: int  # of processor time
    arguments: tuple[str, ...]

    @property
    def instance(self) -> tuple[str, str] | None:
        """A model process's instance group and version, from its arguments: the model's file, six
        more, and the instance's name, which is the group's name and a number."""
        is_stub = self.arguments[0].endswith(STUB)
        if not is_stub or len(self.arguments) < 9:  # or it is about to be one
            return None
        group, _, _ = self.arguments[8].rpartition("_")
        return group, Path(self.arguments[1]).parent.name

    @property
    def name(self) -> str:
        return self.arguments[8] if self.instance else Path(self.arguments[0]).name


def _read(path: str) -> bytes:
    # The keeper reads hundreds of these a second, and pathlib takes three times as long.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()


def children_of(process: int) -> Iterator[int]:
    """Its descendants."""
    with suppress(OSError):  # ended meanwhile
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
            with suppress(OSError):
                for child in map(int, _read(f"/proc/{process}/task/{thread}/children").split()):
                    yield child
                    yield from children_of(child)


def state_of(pid: int) -> str:
    """One letter; none if it has exited."""
    try:
        return _fields(pid)[0]
    except OSError:
        return ""


def _fields(pid: int) -> list[str]:
    """Of its stat, from its state on: the name before may contain anything."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def look_at(pid: int) -> Process | None:
    """None if it has exited."""
    try:
        fields = _fields(pid)
        arguments = _read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
    except OSError:
        return None
    state, user, system = fields[0], fields[11], fields[12]
    return None if state in "ZX" else Process(pid, int(user) + int(system), tuple(arguments))


def began(pid: int) -> str:
    """The boot that it began after, and the ticks since: unlike a time of day, the same after the
    clock was set."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {_fields(pid)[19]}"


def end_with_parent(number: signal.Signals) -> tuple[str, ...]:
    """What a command begins with that is sent this signal when its parent is killed. Not by a
    preexec_fn, which runs in a copy of the parent: one in fifty of those that gRPC's threads are in
    ends or hangs."""
    return "setpriv", "--pdeathsig", number.name.removeprefix("SIG")


def family(root: int) -> list[Process]:
    """The process and its descendants."""
    return [seen for pid in (root, *children_of(root)) if (seen := look_at(pid))]


def remove_leftovers(shm_prefix: str, folder: Path = Path("/tmp")) -> None:
    """The shared memory and the folder of a server that was killed. A folder's owner is unknown, so
    those go that are empty and older than every running server."""
    for region in Path("/dev/shm").glob(f"{shm_prefix}*"):
        with suppress(OSError):  # another user's
            region.unlink(missing_ok=True)
    oldest = min(_servers_began(), default=math.inf)
    for left in folder.glob(FOLDERS):
        with suppress(OSError):  # it is not empty, or another user's
            if left.stat().st_mtime < oldest - CLOCKS_S:
                left.rmdir()


def _servers_began() -> Iterator[float]:
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or ended meanwhile
            if BACKEND in (process / "maps").read_text():
                yield booted + int(_fields(int(process.name))[19]) / TICKS_A_SECOND
