"""Copies on S3 of requests that were kept, in the same form as in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from bundle_door.watching.captures import LINES, Record, read_line
from scripts.base.errors import UserError
from scripts.repository import place
from scripts.settings.settings import Settings

DAY = len("2026-11-27")


def is_elsewhere(text: str) -> bool:
    return "://" in text


@dataclass(frozen=True)
class Store:
    folder: place.Folder

    @classmethod
    def open(cls, url: str) -> Store:
        folder = place.open_folder(Settings.load().replace_with(REPOSITORY=url))
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
            raise UserError(f"{name} is not on {self.folder.location}", "it was removed there")
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
            for number, (_, record) in enumerate(new, 1):
                if name := record.get("file"):
                    self.folder.write(name, fetch(name))
                show(f"{day}, {number:,} of {len(new):,}")
            if new:  # files before the lines that name them; what was forgotten meanwhile stays so
                there = self._read_lines(f"{day}{LINES}")
                self._write_lines(f"{day}{LINES}", [*there, *(line for line, _ in new)])
            added += len(new)
        return added

    def forget(self, id: str) -> int:
        forgotten = 0
        for day in self._list_days():
            lines = self._read_lines(day)
            gone = [line for line in lines if read_line(line).get("id") == id]
            if gone:
                self._write_lines(day, [line for line in lines if line not in gone])
            for file in filter(None, (read_line(line).get("file") for line in gone)):
                self.folder.remove(file)
            forgotten += len(gone)
        return forgotten

    def _list_days(self) -> list[str]:
        return [name for name in self.folder.list() if name.endswith(LINES) and "/" not in name]

    def _read_lines(self, day: str) -> list[bytes]:
        return (self.folder.read(day) or b"").splitlines()

    def _write_lines(self, day: str, lines: Sequence[bytes]) -> None:
        self.folder.write(day, b"".join(line + b"\n" for line in lines))
