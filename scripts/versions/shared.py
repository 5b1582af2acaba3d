"""The versions and what is served, on S3 too where REPOSITORY says so: for the server, which reads
from there, and for every other machine from which they are published and rolled out.

Everything is made in folders here first; S3 is given what has changed of them.
"""

from __future__ import annotations

import json

from scripts.host.settings import Settings
from scripts.storage import on_demand
from scripts.versions import archive, history, live
from scripts.versions.archive import Version


class Shared:
    def __init__(self, wished: Settings) -> None:
        self._remote = on_demand.remote(wished)

    def pull(self) -> None:
        """What was published, and what happened, elsewhere."""
        if self._remote is None:
            return
        there = self._remote.archive
        for name in there.list():
            number, _, file = name.partition("/")
            if file == "version.json" and not _is_here(number, there.read(name)):
                there.fetch(number, archive.HERE / number)
        if told := there.read(history.PATH.name):
            history.replace(told.decode())

    def push_version(self, version: Version) -> None:
        """Its record goes last: where that stands, all of it does."""
        if self._remote:
            there = self._remote.archive
            there.mirror(version.folder, str(version.number), known=there.prefix)

    def push_live(self) -> None:
        """What the server reads: it looks when it is asked to load."""
        if self._remote:
            self._remote.mirror(live.REPOSITORY, known=self._remote.archive.prefix)

    def record(self, what: str, version: int, how: str, note: str = "") -> None:
        history.add(what, version, how, note)
        self.push_history()

    def push_history(self) -> None:
        if self._remote:
            self._remote.archive.write(history.PATH.name, history.PATH.read_bytes())


def _is_here(number: str, told: bytes | None) -> bool:
    record = archive.HERE / number / "version.json"
    return (
        told is not None and record.exists() and json.loads(record.read_text()) == json.loads(told)
    )
