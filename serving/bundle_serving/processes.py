"""What /proc says about a process and its descendants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IS_STOPPED = "T"
STUB = "triton_python_backend_stub"
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    pid: int
    state: str
    ticks: int  # of processor time
    arguments: tuple[str, ...]

    @property
    def instance(self) -> tuple[str, str] | None:
        """A model process's instance group and version, from its arguments: the model's file, six
        more, and the instance's name, which is the group's name and a number."""
        if (
            not self.arguments[0].endswith(STUB) or len(self.arguments) < 9
        ):  # or it is about to be one
            return None
        group, _, _ = self.arguments[8].rpartition("_")
        return group, Path(self.arguments[1]).parent.name

    @property
    def name(self) -> str:
        return self.arguments[8] if self.instance else Path(self.arguments[0]).name


def children_of(process: int) -> Iterator[int]:
    """Its descendants."""
    # A server's 200 threads are looked at every second, and pathlib takes three times as long.
    with suppress(OSError):  # ended meanwhile
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
            listed = f"/proc/{process}/task/{thread}/children"
            with suppress(OSError), open(listed, "rb", buffering=0) as file:  # noqa: PTH123
                for child in map(int, file.read().split()):
                    yield child
                    yield from children_of(child)


def look_at(pid: int) -> Process | None:
    """None if it has exited."""
    folder = Path(f"/proc/{pid}")
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        arguments = (folder / "cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    state, user, system = fields[0], fields[11], fields[12]
    return None if state in "ZX" else Process(pid, state, int(user) + int(system), tuple(arguments))


def began(pid: int) -> str:
    """The boot that it began after, and the ticks since: unlike a time of day, the same after the
    clock was set."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{boot} {fields[19]}"


def family(root: int) -> list[Process]:
    """The process and its descendants."""
    return [seen for pid in (root, *children_of(root)) if (seen := look_at(pid))]
