"""The log that this process and all others of its server write to: kept short where it is a file.

In a container Docker does that.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

MOST_BYTES = 20_000_000


def keep_short(descriptor: int = 1, most: int = MOST_BYTES) -> None:
    """What was written goes to FILE.1, instead of what was there. The file stays the same one, for
    all who append to it."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size <= most:
        return
    file = Path(f"/proc/self/fd/{descriptor}").readlink()
    shutil.copyfile(file, file.with_name(f"{file.name}.1"))
    os.ftruncate(descriptor, 0)
