"""Requests that are kept, with their answers: a file a day of JSON lines, and what was sent in
files beside it.

    2026-11-27.jsonl                    a line each
    2026-11-27/122737.262051-1f3a.jpg   what was sent

Bounded in bytes and days: the oldest go first. With a certificate, each is encrypted for whoever
has its private key, by openssl (CMS, AES-256-GCM); only id, time and the file's name stay readable.

Several processes write here, of two servers while one follows another: under a lock, which knows
how many bytes there are.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

# Below what outlives the server; and beside the admin key.
FOLDER, CERTIFICATE = "capture", "capture.pem"
FILE = re.compile(r"\d{4}-\d\d-\d\d/\d{6}\.\d{6}-[0-9a-f]{4}\.[a-z]+")
DAYS = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
LOCK, LINES, SEALED, DRAFT = ".lock", ".jsonl", ".cms", ".new"
SEAL = ("openssl", "cms", "-encrypt", "-binary", "-aes-256-gcm", "-outform", "DER")
DAY_S = 24 * 3600
# What is left when room is made; and on the disk, for others.
LEFT, LEAST_FREE = 0.9, 256 << 20
# By how files begin.
ENDINGS = {
    b"\xff\xd8": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"BM": ".bmp", b"II*": ".tif",
    b"RIFF": ".webp",
}  # fmt: skip
WAVE = b"WAVE"

Record = dict[str, Any]


class Captures:
    def __init__(
        self, folder: Path, most_bytes: int, days: int, certificate: Path | None = None
    ) -> None:
        self._folder, self._most_bytes, self._days = folder, most_bytes, days
        self._certificate = certificate

    def write(self, record: Record, content: bytes) -> int:
        """How many others had to go for it. An `OSError` where it cannot be kept; then nothing is.
        Blocks."""
        ending = find_ending(content)
        if self._certificate and self._certificate.is_file():
            content = self._seal(json.dumps(record).encode() + b"\n" + content)
            record, ending = {"id": record["id"], "time": record["time"]}, SEALED
        with self._locked() as lock:
            when = datetime.now(UTC)  # so that names are in the order of the lines
            day = self._folder / f"{when:%Y-%m-%d}"
            if content:
                name = f"{when:%H%M%S.%f}-{secrets.token_hex(2)}{ending}"
                record = record | {"file": f"{day.name}/{name}"}
            line = json.dumps(record).encode() + b"\n"
            gone = self._make_room(lock, len(line) + len(content))
            if content:
                self._write_whole(self._folder / record["file"], [content])
            try:
                self._append(day.with_suffix(LINES), line)
            except OSError:
                if content:
                    (self._folder / record["file"]).unlink()
                raise
        return gone

    def _seal(self, content: bytes) -> bytes:
        done = subprocess.run([*SEAL, str(self._certificate)], input=content, capture_output=True)
        if done.returncode:
            raise OSError(f"openssl cannot encrypt for {self._certificate}")
        return done.stdout

    def _append(self, path: Path, line: bytes) -> None:
        with path.open("a+b", buffering=0) as file:
            if end := file.tell():  # the last line may have been cut off, by a kill
                file.seek(-1, os.SEEK_END)
                line = line if file.read(1) == b"\n" else b"\n" + line
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(end)
                raise

    def _write_whole(self, path: Path, pieces: Iterable[bytes]) -> None:
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f"{path.name}{DRAFT}")
        try:
            with draft.open("wb") as file:
                file.writelines(pieces)
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Yields the lock, a file with the bytes that there are. Lines that are still a draft then
        were left by a kill: nothing else would remove them."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for draft in self._folder.glob(f"{DAYS}{LINES}{DRAFT}"):
                draft.unlink()
            yield lock
        finally:
            os.close(lock)

    def _make_room(self, lock: int, more: int) -> int:
        if shutil.disk_usage(self._folder).free < LEAST_FREE + more:
            raise OSError("the disk is nearly full")
        if more > self._most_bytes * (1 - LEFT):
            raise OSError("it is too large for KEEP_MB")
        known = os.pread(lock, 32, 0)
        total = int(known) if known.strip().isdigit() else self._measure()
        gone = 0
        if total + more > self._most_bytes:
            gone = self._remove_oldest()
            total = self._measure()
        os.pwrite(lock, b"%-32d" % (total + more), 0)
        return gone

    def _measure(self) -> int:
        return sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())

    def _remove_oldest(self) -> int:
        """Until there is room again; how many. Lines before their files: what a kill leaves goes
        the next time."""
        total, gone = self._measure(), 0
        for lines in self._list_days():
            if total <= self._most_bytes * LEFT:
                break
            left = self._read_lines(lines)
            for line in left:
                if total <= self._most_bytes * LEFT:
                    self._write_whole(lines, chain([line], left))
                    break
                gone += 1
                path = self._folder / str(read_line(line).get("file"))
                total -= len(line) + (path.stat().st_size if path.exists() else 0)
            else:
                lines.unlink(missing_ok=True)
            self._remove_unnamed(lines)
        return gone

    def _remove_unnamed(self, lines: Path) -> None:
        """Files of the day that none of its lines names."""
        if not (day := lines.with_suffix("")).is_dir():
            return
        named = {read_line(line).get("file") for line in self._read_lines(lines)}
        for path in day.glob("*"):
            if f"{day.name}/{path.name}" not in named:
                path.unlink()
        with suppress(OSError):
            day.rmdir()

    def _list_days(self) -> list[Path]:
        """Their lines; of a day whose removal was cut off, by a kill, only files are there. Other
        folders are not the door's, such as a file system's own."""
        files = (day.with_suffix(LINES) for day in self._folder.glob(DAYS) if day.is_dir())
        return sorted({*self._folder.glob(f"*{LINES}"), *files})

    def _read_lines(self, lines: Path) -> Iterator[bytes]:
        with suppress(FileNotFoundError), lines.open("rb") as file:
            yield from file

    def remove_old(self) -> None:
        """Days that are to be kept no longer."""
        if not self._folder.exists():
            return
        since = max(0, int(time.time()) - self._days * DAY_S)
        first = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d}"
        with self._locked() as lock:
            for lines in self._list_days():
                if lines.stem < first:
                    lines.unlink(missing_ok=True)
                    self._remove_unnamed(lines)
                    os.ftruncate(lock, 0)  # to be measured again

    def read(self) -> Iterator[Record]:
        """The oldest first; without lines that were cut off."""
        for lines in self._list_days():
            for line in self._read_lines(lines):
                if record := read_line(line):
                    yield record

    def open_file(self, name: str) -> bytes:
        """`name`: as a record has it; a `FileNotFoundError` where none does."""
        if not FILE.fullmatch(name):
            raise FileNotFoundError(name)
        return (self._folder / name).read_bytes()

    def forget(self, id: str) -> int:
        """How many there were."""
        return self._remove(lambda record: record.get("id") == id)

    def leave(self, records: Collection[tuple[str, str]]) -> int:
        """Those with these ids and times, which are kept elsewhere."""
        return self._remove(lambda record: (record.get("id"), record.get("time")) in records)

    def _remove(self, goes: Callable[[Record], bool]) -> int:
        gone = 0
        if not self._folder.exists():
            return 0
        with self._locked() as lock:
            for lines in self._list_days():
                kept, before = list[bytes](), gone
                for line in self._read_lines(lines):
                    record = read_line(line)
                    if not goes(record):
                        kept.append(line)
                        continue
                    gone += 1
                    # First, so that there is room on a full disk for the lines that are left.
                    if file := record.get("file"):
                        (self._folder / file).unlink(missing_ok=True)
                if kept and gone > before:
                    self._write_whole(lines, kept)
                elif gone > before:
                    lines.unlink()
            os.ftruncate(lock, 0)
        return gone


def read_line(line: bytes) -> Record:
    """Empty where it was cut off."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def find_ending(content: bytes) -> str:
    if content[8:12] == WAVE:
        return ".wav"
    return next((end for begin, end in ENDINGS.items() if content.startswith(begin)), ".bin")


def unseal(content: bytes, key: Path) -> tuple[Record, bytes]:
    """What was sealed for the certificate of this private key. A `ValueError` where it was not."""
    command = ["openssl", "cms", "-decrypt", "-binary", "-inform", "DER", "-inkey", str(key)]
    done = subprocess.run(command, input=content, capture_output=True)
    head, end, rest = done.stdout.partition(b"\n")
    if done.returncode or not end:
        raise ValueError(f"{key} does not open it")
    return read_line(head), rest
