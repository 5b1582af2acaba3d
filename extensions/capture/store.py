"""Copies on S3 of requests that were kept, in the same form as in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from bundle_door.watching.captures import LINES, Record, read_line
from scripts.base.errors import UserError
from scripts.repository import place
from scripts.server.triton import triton_api
from scripts.settings.settings import Settings

TOGETHER = 100  # requests, before their day's lines are written again
DAY = len("2026-11-27")


def is_elsewhere(text: str) -> bool:
    return "://" in text


@dataclass(frozen=True)
class Store:
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
            raise triton_api.Missing(
                f"{name} is not on {self.folder.location}", "it was removed there"
            )
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
            except triton_api.Missing:
                continue
            lines.append(line)
        if lines:  # what was forgotten meanwhile stays so
            self._write_lines(day, [*self._read_lines(day), *lines])
        return len(lines)

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
