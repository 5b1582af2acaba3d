"""Who reads, in a container, what belongs to the user of make: the server's user, through the group
of its file. Stdlib only."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

# The user and the group, shared with nobody else.
READER = 65532
# Groups that a user may give to containers of a rootless engine, which numbers them from 1.
GIVEN = Path("/etc/subgid")


def may_read(path: Path) -> bool:
    return path.stat().st_gid in (READER, _find_in_rootless())


def _find_in_rootless() -> int | None:
    """The number that the group has on this machine, if this user's engine is rootless."""
    inside = 1
    with suppress(OSError, KeyError, ValueError):  # no such file, no such user, another form
        names = (pwd.getpwuid(os.getuid()).pw_name, str(os.getuid()))
        for line in GIVEN.read_text().splitlines():
            who, first, count = line.split(":")
            if who in names:
                if READER - inside < int(count):
                    return int(first) + READER - inside
                inside += int(count)
    return None
