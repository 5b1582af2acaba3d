"""Names of files that come from elsewhere: from a backup, from S3, from a network, from a record.
Stdlib only."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

# With one of them, a name is not what it looks like, here or where it is read next.
ODD = {*map(chr, range(32)), "\x7f", "\\"}
LONGEST = 255  # bytes of a part, on any file system


def why_not(folder: Path, *names: str) -> str:
    """Why not all of them can be files below the folder, each in a place of its own; empty if they
    can. No link that is there leads out of it, and nothing but a file would be replaced."""
    base, taken = folder.resolve(), {*names}
    for name in names:
        if why := _why_not(base, name):
            return f"{name!a} {why}"
        if above := taken.intersection(map(str, PurePosixPath(name).parents)):
            return f"{name!a} lies below {above.pop()!a}, which is a file"
    return ""


def _why_not(base: Path, name: str) -> str:
    if ODD & {*name}:
        return "has a character that no name has"
    if {"", ".", ".."} & {*name.split("/")}:
        return "is no plain path"
    try:
        if max(map(len, os.fsencode(name).split(b"/"))) > LONGEST:
            return "is too long"
        place = (base / name).resolve()
        above = [base / each for each in place.relative_to(base).parents]
        if any(each.is_symlink() for each in (place, *above)):  # they go round in a circle
            return "leads elsewhere, or nowhere"
        others = [each for each in above if not each.is_dir()]
        others += [] if place.is_file() else [place]
        if any(each.exists() for each in others):
            return "is in the place of something else"
    except (OSError, RuntimeError, ValueError):  # not to be encoded; links that end nowhere
        return "leads elsewhere, or nowhere"
    return ""
