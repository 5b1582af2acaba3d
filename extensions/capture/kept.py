"""Requests that were kept, by the running server, in a folder or on S3, and copies of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, Field, ValidationError

from bundle_door.watching.captures import (
    FILE,
    LINES,
    SEALED,
    Captures,
    Record,
    find_ending,
    read_line,
    unseal,
)
from scripts.base import files, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes.pictures import UNTRAINED
from scripts.repository import place
from scripts.server.triton import triton_api
from scripts.server.triton.triton_api import Missing
from scripts.settings.settings import Settings
from scripts.stacks import state

NO_PICTURES = (".bin", ".wav")
TOGETHER = 100  # requests, before their day's lines are written again
DAY = len("2026-11-27")
# Held while a day's lines are read and written again: of two commands one would undo the other.
WRITING = ROOT / "build" / "captured.lock"
NOT_OURS = "this copy is not one that the bundle has made"
Name = Annotated[str, Field(pattern=f"^{FILE.pattern}$")]


class Sealed(BaseModel):
    """What can be read of each."""

    id: str
    time: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT")]
    file: Name = ""
    sealed: Name = ""


class Opened(Sealed):
    pipeline: str
    version: str
    path: str
    type: str
    ms: float
    labels: list[tuple[Any, float]]
    head: str


@dataclass(frozen=True)
class Kept:
    records: list[Record]
    fetch: Callable[[str], bytes]
    key: Path | None = None

    @classmethod
    def find(cls, where: str, key: Path | None) -> Kept:
        """In this folder, or on S3; empty: what the server has kept."""
        if not where:
            address = find_server().http
            records, fetch = triton_api.get(address, "/captures"), triton_api.fetch
            return cls(records, lambda name: fetch(address, f"/captures/{quote(name)}"), key)
        if is_elsewhere(where):
            store = Store.open(where)
            kept = cls(store.read_records(), store.fetch, key)
        else:
            folder = Path(where)
            if not [*folder.glob(f"*{LINES}")]:
                raise UserError(f"in {folder} no request was kept", "copy some: make captured TO=…")
            records = [*Captures(folder, 0, 0).read()]
            kept = cls(records, lambda name: read_file(folder, name), key)
        for record in kept.records:
            require_sound(record, Sealed if is_sealed(record) else Opened)
        return kept

    def open_all(self) -> Iterator[Record]:
        """But those that have gone since."""
        for each in self.records:
            with suppress(Missing):
                yield self._open(each)[0] if is_sealed(each) else each

    def read(self, record: Record) -> bytes:
        """What was sent, after the JSON before it. `Missing` where it has gone since: the server
        makes room for others."""
        return self._open(record)[1] if is_sealed(record) else self._fetch(record)

    def _read_each(self, records: Iterable[Record]) -> Iterator[tuple[Record, bytes]]:
        """But those that have gone since."""
        for each in records:
            with suppress(Missing):
                yield each, self.read(each)

    def _fetch(self, record: Record) -> bytes:
        name = record.get("sealed") or record.get("file")
        return self.fetch(name) if name else b""

    def _open(self, record: Record) -> tuple[Record, bytes]:
        if self.key is None:
            raise UserError("what was kept is encrypted", "name the private key: KEY=capture.key")
        try:
            head, content = unseal(self._fetch(record), self.key)
        except ValueError as fault:
            raise UserError(str(fault), "use the key that make captured SEAL=… wrote") from None
        except FileNotFoundError:
            raise lack_openssl() from None
        require_sound(head, Opened)
        head["sealed"] = name = record.get("sealed") or record["file"]
        if content:
            head["file"] = name.removesuffix(SEALED) + find_ending(content)
        return head, content

    def lay_out(self, folder: Path) -> int:
        """As the server keeps them, but not encrypted. How many there were."""
        count = 0
        for record, content in self._read_each(self.open_all()):
            count += 1
            if content:
                write_below(folder, record["file"], content)
            own = {name: value for name, value in record.items() if name != "sealed"}
            day = folder / record["time"][:DAY]
            with day.with_suffix(LINES).open("a") as lines:
                lines.write(json.dumps(own) + "\n")
        return count

    def lay_out_for_labels(self, folder: Path, most: int, pipeline: str) -> int:
        """The pictures most worth a label, in a folder for each class that they were called, as
        `EVAL=` takes them of one pipeline. How many there were."""
        seen = set[str]()
        its_own = (each for each in self.open_all() if each["pipeline"] == pipeline)
        for record, content in self._read_each(sort_by_worth(its_own)):
            if (digest := hashlib.sha256(content).hexdigest()) not in seen:
                name = name_file(record["id"]) + Path(record["file"]).suffix
                label = name_folder(str(record["labels"][0][0]))
                write_below(folder, f"{label}/{name}", content)
                seen.add(digest)
                if len(seen) == most:
                    break
        return len(seen)


@dataclass(frozen=True)
class Store:
    """Copies on S3, in the same form as in a folder."""

    folder: place.Folder

    @classmethod
    def open(cls, url: str) -> Store:
        try:
            folder = place.open_folder(Settings.load().replace_with(REPOSITORY=url))
        except UserError as fault:  # of a place that REPOSITORY does not name here
            raise UserError(fault.cause.removeprefix("REPOSITORY="), fault.remedy) from None
        if folder is None:
            raise UserError(f"{url} is nowhere that is known", "name a folder, or s3://bucket/path")
        return cls(folder)

    def read_records(self) -> list[Record]:
        lines = [line for day in self._list_days() for line in self._read_lines(day)]
        if not lines:
            remedy = "copy some: make captured TO=s3://…"
            raise UserError(f"on {self.folder.location} no request was kept", remedy)
        return [record for line in lines if (record := read_line(line))]

    def fetch(self, name: str) -> bytes:
        content = self.folder.read(name)
        if content is None:
            raise Missing(f"{name} is not on {self.folder.location}", "it was removed there")
        return content

    def add(
        self,
        records: Sequence[Record],
        fetch: Callable[[str], bytes],
        show: Callable[[str], None] = lambda _: None,
    ) -> int:
        """Those that are not there yet, as they are: what is encrypted stays so. How many."""
        added = 0
        for day, kept in groupby(records, key=lambda record: str(record["time"])[:DAY]):
            given = [(json.dumps(record).encode(), record) for record in kept]
            known = {*self._read_lines(f"{day}{LINES}")}
            new = [each for each in given if each[0] not in known]
            for at in range(0, len(new), TOGETHER):
                show(f"{day}, {at:,} of {len(new):,}")
                added += self._add_some(f"{day}{LINES}", new[at : at + TOGETHER], fetch)
        return added

    def _add_some(
        self, day: str, some: Sequence[tuple[bytes, Record]], fetch: Callable[[str], bytes]
    ) -> int:
        """Files before the lines that name them, and without those that have gone since."""
        lines = []
        for line, record in some:
            try:
                if name := record.get("file"):
                    self.folder.write(name, fetch(name))
            except Missing:
                continue
            lines.append(line)
        if lines:  # what was forgotten meanwhile stays so
            with lock.one_at_a_time(WRITING):
                self._write_lines(day, [*dict.fromkeys([*self._read_lines(day), *lines])])
        return len(lines)

    def forget(self, id: str) -> int:
        forgotten = 0
        for day in self._list_days():
            with lock.one_at_a_time(WRITING):
                lines = self._read_lines(day)
                gone = [line for line in lines if read_line(line).get("id") == id]
                for file in filter(None, (read_line(line).get("file") for line in gone)):
                    self.folder.remove(file)  # while a line names it, for one that is cut off here
                if gone:
                    self._write_lines(day, [line for line in lines if line not in gone])
            forgotten += len(gone)
        return forgotten

    def _list_days(self) -> list[str]:
        return [name for name in self.folder.list() if name.endswith(LINES) and "/" not in name]

    def _read_lines(self, day: str) -> list[bytes]:
        return (self.folder.read(day) or b"").splitlines()

    def _write_lines(self, day: str, lines: Sequence[bytes]) -> None:
        self.folder.write(day, b"".join(line + b"\n" for line in lines))


def is_elsewhere(text: str) -> bool:
    return "://" in text


def name_folder(label: str) -> str:
    """Of pictures that were called so."""
    return label.removesuffix(UNTRAINED).removeprefix("class ").replace("/", "_")


def name_file(id: str) -> str:
    """Without its ending."""
    return re.sub(r"[^\w.-]", "_", id)


def require_sound(record: Record, form: type[Sealed]) -> None:
    """It may come from elsewhere, and names files."""
    try:
        form.model_validate(record)
    except ValidationError as fault:
        field, *_ = fault.errors()[0]["loc"]
        why = f"{str(record.get('id'))!a} has no {field} as the door writes it"
        raise UserError(why, NOT_OURS) from None


def read_file(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
        raise Missing(f"{name} is not in {folder}", "it was removed there") from None


def lack_openssl() -> UserError:
    return UserError("openssl is needed for encrypted requests", "apt-get install openssl")


def write_below(folder: Path, name: str, content: bytes) -> None:
    """`name`: of a record, which may come from elsewhere."""
    if why := files.why_not_below(folder, name):
        raise UserError(f"{name!a} {why}", NOT_OURS)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def find_server() -> Any:
    known = state.require()
    known.require_one_server()
    return known


def is_sealed(record: Record) -> bool:
    return "sealed" in record or str(record.get("file")).endswith(SEALED)


def is_picture(record: Record) -> bool:
    return bool(record["labels"]) and not record.get("file", ".bin").endswith(NO_PICTURES)


def sort_by_worth(records: Iterable[Record]) -> list[Record]:
    """Pictures of each class in turn, those first whose two likeliest classes are nearest."""
    by_class: dict[str, list[Record]] = {}
    for record in sorted(filter(is_picture, records), key=find_margin):
        by_class.setdefault(record["labels"][0][0], []).append(record)
    return [each for turn in zip_longest(*by_class.values()) for each in turn if each]


def find_margin(record: Record) -> float:
    """Of an answer with one label: at least so much."""
    first, *others = [share for _, share in record["labels"]]
    return float(first - (others[0] if others else 1 - first))
