"""What is left where the server runs, for Prometheus: memory, disk, and the certificate's days."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bundle_door.access.certificate import ends
from bundle_door.watching.measures import Family, Gauge

CGROUPS = Path("/sys/fs/cgroup")
# Of version 2 (this process's own group, then the container's) and of version 1.
LIMIT, USED, CACHED = 0, 1, 2
OF_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
OF_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class Room:
    def __init__(self, folder: Path, certificate: Path | None) -> None:
        self._folder = folder
        self._certificate = certificate
        self._ends: tuple[int, float | None] = (0, None)  # for the file of this time

    def families(self) -> list[Family]:
        used, limit = memory()
        gauges = [
            _gauge("bundle_memory_used_bytes", "Of the container, else of the machine", used),
            _gauge("bundle_memory_limit_bytes", "How much of it may be used", limit),
        ]
        with suppress(OSError):  # between two versions
            disk = os.statvfs(self._folder)
            block = disk.f_frsize
            gauges += [
                _gauge("bundle_disk_free_bytes", "Where the versions lie", disk.f_bavail * block),
                _gauge("bundle_disk_size_bytes", "Of that disk", disk.f_blocks * block),
            ]
        if (seconds := self._certificate_ends()) is not None:
            name = "bundle_certificate_expires_timestamp_seconds"
            gauges.append(_gauge(name, "When the certificate of the ports ends", seconds))
        return list(gauges)

    def _certificate_ends(self) -> float | None:
        with suppress(OSError):
            if self._certificate:
                changed = self._certificate.stat().st_mtime_ns
                if changed != self._ends[0]:
                    self._ends = changed, ends(self._certificate)
                return self._ends[1]
        return None


def _gauge(name: str, description: str, value: float) -> Gauge:
    gauge = Gauge(name, description)
    gauge.set(value)
    return gauge


def memory(groups: Path = CGROUPS, proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes in use, without what the kernel can drop at once, and the limit: of the smallest group
    that has one, else the machine's."""
    machine = {
        name: 1024 * int(rest.split()[0])
        for name, _, rest in (
            line.partition(":") for line in (proc / "meminfo").read_text().splitlines()
        )
    }
    total = machine["MemTotal"]
    for folder, names in _groups(groups, proc):
        with suppress(OSError, ValueError, StopIteration):
            limit = int((folder / names[LIMIT]).read_text())  # "max" is none
            if limit < total:
                used = int((folder / names[USED]).read_text())
                statistics = (folder / "memory.stat").read_text().splitlines()
                cached = next(line for line in statistics if line.startswith(f"{names[CACHED]} "))
                return used - int(cached.split()[1]), limit
    return total - machine["MemAvailable"], total


def _groups(groups: Path, proc: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            if line.startswith("0::/"):
                yield groups / line.removeprefix("0::/"), OF_VERSION_2
    yield groups / "memory", OF_VERSION_1
