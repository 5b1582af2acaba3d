"""Removes what a killed server left on the machine."""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bundle_serving.process.processes import TICKS_A_SECOND

# Triton's Python backend creates this folder at its start and removes it at its end; its place
# cannot be configured.
FOLDERS = "python_env_*"
BACKEND = "libtriton_python.so"
CLOCKS_S = 5  # that the file system's and the processes' clocks may differ by


def remove(shm_prefix: str, folder: Path = Path("/tmp")) -> None:
    """Removes the server's shared memory and folder. A folder's owner is unknown, so this removes
    those that are empty and older than every running server."""
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
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                yield booted + int(fields[19]) / TICKS_A_SECOND
