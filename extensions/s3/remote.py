"""A folder on S3: mirrored from a local one, fetched as a whole, or read file by file.

Files become visible in an order by which a server that starts meanwhile never finds half a version:
S3 has no rename, and a version folder exists from its first object on. First what no version needs;
then models (without model.py, a Python model makes Triton wait for minutes; with it alone, Triton
reports what is missing); then the files beside them; then configs; last the ensembles, which name
all the others. Deletion goes in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

from botocore.exceptions import ClientError

from extensions.s3.access import Access
from extensions.s3.bucket import Bucket, Stored, at_once, in_parts
from extensions.s3.check import explain_faults
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.repository.history import SHOWN

# Smaller files are uploaded faster than it takes to look for a copy on S3.
WORTH_A_COPY = 64 << 10
# The record of an archived version: if it exists, so does the rest.
LAST = "version.json"


@dataclass(frozen=True)
class Local:
    name: str  # relative to the folder, with slashes
    path: Path | None  # None: an empty folder, which S3 represents by a marker
    size: int
    sha256: str
    rank: int = 0  # equal ranks may become visible in any order


@dataclass(frozen=True)
class Pushed:
    uploaded: int
    skipped: int
    removed: int
    bytes: int  # uploaded, without server-side copies


class Remote:
    def __init__(self, access: Access, bucket: Bucket | None = None) -> None:
        self._access, self.location = access, access.location
        self._bucket = bucket or Bucket(access)
        self.prefix = f"{self.location.path}/"  # of every key in this folder

    @cached_property
    def archive(self) -> Remote:
        """Where versions are kept: beside the live folder, all of which a server reads."""
        return self.place_beside("versions")

    def place_beside(self, what: str) -> Remote:
        return Remote(
            replace(self._access, location=self.location.place_beside(what)), self._bucket
        )

    def mirror(
        self,
        folder: Path,
        to: str = "",
        *,
        delete: bool = True,
        known: str = "",
        only: Collection[str] = (),
    ) -> Pushed:
        """Makes the folder on S3 equal to the local one, or `only` these folders in it and the
        files beside them. Content that S3 already has below the prefix `known` is copied on the
        server."""

        def is_meant(name: str) -> bool:
            top, below, _ = name.partition("/")
            return not (only and below) or top in only

        with explain_faults(self._access):
            base = self._base(to)
            there = self._bucket.list_below(base)
            there = {name: each for name, each in there.items() if is_meant(name)}
            wanted = [each for each in list_in_order(folder) if is_meant(each.name)]
            changed = self._find_changed(wanted, there)
            copies = self._copies(changed, base, known)
            surplus = {name: there[name].size for name in there.keys() - {w.name for w in wanted}}
            total = sum(each.size for each in changed)
            with console.progress(f"to {self.location}", total) as advance:
                self._put(changed, base, copies, advance)
            if delete:
                self._delete(surplus, base)
                # Triton reloads if a file is newer, but not if one is missing, and would keep
                # serving a removed version.
                configs = {f"{name.partition('/')[0]}/config.pbtxt" for name in surplus}
                newer = [each for each in wanted if each.name in configs]
                self._put(newer, base, {}, lambda _: None)
            went = sum(each.size for each in changed if each.sha256 not in copies)
        removed = len(surplus) if delete else 0
        return Pushed(len(changed), len(wanted) - len(changed), removed, went)

    def fetch(self, at: str, folder: Path) -> None:
        """Fetches all of it or nothing."""
        with (
            explain_faults(self._access),
            files.whole_folder(folder) as draft,
        ):
            base = self._base(at)
            there = self._bucket.list_below(base)
            if not there:
                raise UserError(f"there is nothing below {base} on S3", "make s3-check shows why")
            there.pop("", None)  # a mark of the folder itself
            if why := files.why_not_below(draft, *(_within(name) for name in there)):
                raise UserError(
                    f"below {base} on S3, {why}", "remove it there; nothing has been fetched"
                )
            total = sum(each.size for each in there.values())
            with console.progress(f"from {self.location}", total) as advance:
                for name, each in there.items():
                    path = draft / name
                    if name.endswith("/"):
                        path.mkdir(parents=True, exist_ok=True)
                        continue
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._bucket.download(each.key, path, advance)

    def read(self, name: str) -> bytes | None:
        """None if there is no such object."""
        with explain_faults(self._access):
            try:
                return self._bucket.read(self.prefix + name)
            except ClientError as fault:
                if fault.response.get("Error", {}).get("Code") == "NoSuchKey":
                    return None
                raise

    def write(self, name: str, content: bytes) -> None:
        with explain_faults(self._access):
            self._bucket.write(self.prefix + name, content)

    def list_stored(self, prefix: str = "") -> dict[str, Stored]:
        """What is in this folder under names with this prefix, in order."""
        with explain_faults(self._access):
            there = self._bucket.list_below(self.prefix + prefix)
        return {prefix + name: there[name] for name in sorted(there)}

    def list(self, prefix: str = "") -> list[str]:
        return [*self.list_stored(prefix)]

    def remove(self, prefix: str) -> None:
        """Removes everything with this prefix."""
        with explain_faults(self._access):
            base = self.prefix + prefix
            there = self._bucket.list_below(base)
            self._delete({name: each.size for name, each in there.items()}, base)

    def _base(self, folder: str) -> str:
        return f"{self.prefix}{folder}/" if folder else self.prefix

    def _find_changed(self, wanted: Sequence[Local], there: dict[str, Stored]) -> Sequence[Local]:
        def here(each: Local) -> Stored | None:
            found = there.get(each.name)
            return found if found and found.size == each.size else None

        sums = self._bucket.sums([found for each in wanted if each.path and (found := here(each))])
        return [
            each
            for each in wanted
            if each.name not in there
            or (each.path and sums.get(there[each.name].key) != each.sha256)
        ]

    def _copies(self, changed: Sequence[Local], base: str, known: str) -> dict[str, str]:
        """By hash: objects with the same content that will still exist when they are copied."""
        large = {each.sha256: each.size for each in changed if each.size >= WORTH_A_COPY}
        if not known or not large:
            return {}
        overwritten = {base + each.name for each in changed}
        lasting = [e for e in self._bucket.list_below(known).values() if e.key not in overwritten]

        def find(content: tuple[str, int]) -> str | None:
            sha256, size = content
            return self._bucket.newest_with(sha256, (e for e in lasting if e.size == size))

        found = at_once(find, large.items())
        return {sha256: key for sha256, key in zip(large, found, strict=True) if key}

    def _put(
        self,
        changed: Iterable[Local],
        base: str,
        copies: dict[str, str],
        advance: Callable[[int], object],
    ) -> None:
        """In parallel only what may become visible in any order; multipart uploads one by one."""

        def put(each: Local) -> None:
            key = base + each.name
            if each.path is None:
                self._bucket.write(key)
            elif source := copies.get(each.sha256):
                self._bucket.copy(source, key, each.sha256)
                advance(each.size)
            else:
                self._bucket.send(each.path, key, each.sha256, advance)

        for _, rank in groupby(changed, key=lambda each: each.rank):
            together = []
            for each in rank:
                if in_parts(each.size) and each.sha256 not in copies:
                    put(each)
                else:
                    together.append(each)
            at_once(put, together)

    def _delete(self, sizes: dict[str, int], base: str) -> None:
        """In the reverse order of the upload."""
        order = Order(sizes).rank
        last_first = sorted(sizes, key=lambda name: (order(name), -sizes[name]), reverse=True)
        for _, rank in groupby(last_first, key=order):
            at_once(self._bucket.delete, [base + name for name in rank])


def _within(name: str) -> str:
    """The name of a file; for an empty folder, which has a mark, of one in it."""
    return f"{name}_" if name.endswith("/") else name


def list_in_order(folder: Path) -> list[Local]:
    """The folder's content, in upload order."""
    found = list(_walk(folder, ""))
    order = Order(each.name for each in found)
    ranked = (replace(each, rank=order.rank(each.name)) for each in found)
    return sorted(ranked, key=lambda each: (each.rank, -each.size, each.name))


class Order:
    def __init__(self, names: Iterable[str]) -> None:
        """Takes all names: an ensemble is a model whose version folders are empty."""
        given = list(names)
        self._members = {name.partition("/")[0] for name in given if _of_a_version(name)}

    def rank(self, name: str) -> int:
        model, _, rest = name.partition("/")
        folder, _, file = rest.partition("/")
        if name == LAST:
            return 7
        if model not in self._members:
            return 6 if name.endswith(".pbtxt") else 5
        if folder.isdecimal():
            return 2 if file.startswith("model.") else 3
        return 4 if name.endswith(".pbtxt") else 1


def _of_a_version(name: str) -> bool:
    folder, _, file = name.partition("/")[2].partition("/")
    return folder.isdecimal() and file not in ("", ".gitkeep")


def _walk(folder: Path, prefix: str) -> Iterator[Local]:
    entries = [entry for entry in sorted(folder.iterdir()) if not _passing(entry.name)]
    if prefix and not entries:
        yield Local(prefix, None, 0, "")
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield Local(f"{prefix}{entry.name}", entry, entry.stat().st_size, files.sha256(entry))


def _passing(name: str) -> bool:
    return (
        name == SHOWN or name == "__pycache__" or (name.startswith(".") and name.endswith(".tmp"))
    )
