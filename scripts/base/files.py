"""Atomic file operations, so that nobody sees a half-written file; which names from elsewhere files
may have, and who may write in a checkout. Stdlib only."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from scripts.base.errors import UserError, refuse_place
from scripts.base.paths import ROOT

# With one of them, a name from elsewhere is not what it looks like, here or where it is read next.
ODD = {*map(chr, range(32)), "\x7f", "\\"}
LONGEST_NAME = 255  # bytes of a part, on any file system


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_same(path: str | Path, other: str | Path) -> bool:
    """Whether both name one file. A URL names none, nor does what is gone."""
    try:
        return os.path.samefile(path, other)  # noqa: PTH121
    except OSError:
        return False


def read_json(path: Path) -> dict[str, Any]:
    """Empty where there is no such file, or something else is in it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, content: str, mode: int = 0o644, lasting: bool = False) -> None:
    write_bytes(path, content.encode(), mode, lasting)


def write_private(path: Path, content: str) -> None:
    """For those alone who work in this checkout: secrets are in it, or what clients sent."""
    write(path, content, 0o660 if is_shared() else 0o600)


def write_bytes(path: Path, content: bytes, mode: int = 0o644, lasting: bool = False) -> None:
    """`lasting`: what nothing else says is on the disk before it takes an earlier one's place; a
    power failure could leave that empty else."""
    with draft_of(path) as draft:
        draft.touch(0o600)  # never readable by others, not even for a moment
        draft.write_bytes(content)
        draft.chmod(mode)
        if lasting:
            sync(draft)
    if lasting:
        sync(path.parent)


def sync(path: Path) -> None:
    passed_over = (OSError,) if path.is_dir() else ()  # some file systems sync no folder
    with contextlib.suppress(*passed_over):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """Yields a file beside the target that replaces it at the end and is removed on any failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield draft
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def let_all_read(folder: Path) -> None:
    """Makes a folder readable whatever the umask: containers read it as another user. Not what
    links lead to, which may be nowhere, as an editor's lock does, or elsewhere."""
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # another Python wrote its __pycache__
            mode = path.lstat().st_mode
            wanted = mode | (0o555 if stat.S_ISDIR(mode) else 0o444)
            if wanted != mode and not stat.S_ISLNK(mode):
                path.chmod(wanted)


def link(source: Path, target: Path) -> None:
    """Installs a large file atomically; a hard link where both are on one file system."""
    with draft_of(target) as draft:
        _link(str(source), str(draft))
        draft.chmod(0o644)


def put(content: Path | str, target: Path) -> None:
    """A large file, or a text."""
    link(content, target) if isinstance(content, Path) else write(target, content)


def copy(source: Path, target: Path) -> None:
    """Installs a file atomically that shares nothing with its source."""
    with draft_of(target) as draft:
        shutil.copyfile(source, draft)
        draft.chmod(0o644)


def link_tree(source: Path, target: Path) -> None:
    """A copy made of hard links, and never half of one, which later commands would take for the
    whole. Safe, because files are replaced and never written in place."""
    with whole_folder(target) as draft:
        shutil.copytree(source, draft, copy_function=_link, dirs_exist_ok=True)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another user's file, or another file system
        shutil.copy2(source, target)


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """As draft_of: for a file too large to be passed at once, of which no other process writes
    another draft."""
    remove_drafts(target)
    with draft_of(target) as draft:
        yield draft


def remove_drafts(target: Path) -> None:
    """Those that killed runs have left."""
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yields a draft folder that replaces the target at the end and is removed on any failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}.*.tmp"):  # left by a killed run
        aside = rf"\.{re.escape(target.name)}\.\d+\.old\.tmp"
        if not target.exists() and re.fullmatch(aside, leftover.name):
            leftover.rename(target)  # killed between the two renames below
        shutil.rmtree(leftover, ignore_errors=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    old = target.with_name(f".{target.name}.{os.getpid()}.old.tmp")
    try:
        draft.mkdir()
        yield draft
        if target.exists():
            target.rename(old)
        draft.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)  # Ctrl-C between the two
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def require_new(folder: Path) -> None:
    """Asked before the work that is to fill it."""
    if folder.exists():
        raise UserError(f"{folder} exists", "name a folder that is new: TO=folder")
    try:
        folder.mkdir(parents=True)
        folder.rmdir()
    except OSError as fault:
        raise refuse_place(folder, fault) from None


def remove_own(folder: Path) -> None:
    if folder.is_symlink():
        return folder.unlink()  # other checkouts may use what it leads to
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # perhaps sudo left it
        raise UserError(f"what another user made in {folder} stays", f"sudo rm -r {folder}")


def empty(folder: Path) -> None:
    """And removes it, unless it is a link to another disk, or a disk of its own."""
    for each in folder.iterdir() if folder.exists() else ():
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def why_not_below(folder: Path, *names: str) -> str:
    """Of names from elsewhere, as from a backup, S3, a network or a record: why not all of them can
    be files below the folder, each in a place of its own; empty if they can. No link that is there
    leads out of it, and nothing but a file would be replaced."""
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
        if max(map(len, os.fsencode(name).split(b"/"))) > LONGEST_NAME:
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


def is_shared() -> bool:
    """Whether a group shares the checkout (chgrp -R team . && chmod -R g+ws .): what is created in
    it belongs to the group, which may write there."""
    return ROOT.stat().st_mode & (stat.S_ISGID | stat.S_IWGRP) == stat.S_ISGID | stat.S_IWGRP


def share() -> None:
    """Lets the group write what this command creates."""
    if is_shared():
        os.umask(0o002)
