"""A folder on S3: mirrored from a local one, fetched as a whole, or its small files one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from types_boto3_s3 import S3Client

from scripts import files
from scripts.errors import UserError
from scripts.host import console
from scripts.host.settings import Settings
from scripts.storage import credentials, order
from scripts.storage.client import STORED_S, connect
from scripts.storage.credentials import Keys
from scripts.storage.diagnosis import told
from scripts.storage.location import Location
from scripts.storage.order import Local

# A larger file goes in parts, each signed by itself; 8 MB a part suits a slow line too.
PARTS = TransferConfig(multipart_threshold=16 << 20, multipart_chunksize=8 << 20)
ASKED_AT_ONCE = 8


@dataclass(frozen=True)
class Pushed:
    uploaded: int
    skipped: int
    removed: int
    bytes: int  # that went over the line; what S3 copied by itself did not


class Remote:
    def __init__(self, location: Location, settings: Settings, keys: Keys | None = None) -> None:
        self.location = location
        self._settings = settings
        self._keys = keys or credentials.of_operator(location)

    @property
    def archive(self) -> Remote:
        return Remote(self.location.archive, self._settings, self._keys)

    @property
    def prefix(self) -> str:
        """Of every key below this folder, inside the bucket."""
        return f"{self.location.path}/"

    @cached_property
    def _quick(self) -> S3Client:
        return connect(self.location, self._keys, self._settings)

    @cached_property
    def _patient(self) -> S3Client:
        return connect(self.location, self._keys, self._settings, STORED_S)

    def mirror(self, folder: Path, to: str = "", delete: bool = True, known: str = "") -> Pushed:
        """Makes the folder on S3 equal to the local one. Below the prefix `known` S3 may hold the
        same content already, and then copies it by itself."""
        with told(self.location, self._keys):
            base = self._base(to)
            there = self._sizes(base)
            wanted = order.contents(folder)
            changed = self._changed(wanted, base, there)
            copies = self._copies(changed, base, known)
            surplus = sorted(
                there.keys() - {each.name for each in wanted},
                key=lambda name: order.place(name, there[name]),
                reverse=True,
            )
            total = sum(each.size for each in changed)
            went = 0
            with console.progress(f"to {self.location}", total) as advance:
                for each in changed:
                    source = copies.get(each.sha256)
                    self._put(each, base, source, advance)
                    went += 0 if source else each.size
            if delete:
                self._delete(base + name for name in surplus)
                self._renew([each for each in wanted if each.name in _configs_of(surplus)], base)
        removed = len(surplus) if delete else 0
        return Pushed(len(changed), len(wanted) - len(changed), removed, went)

    def fetch(self, at: str, folder: Path) -> None:
        """The whole of it, or nothing."""
        with told(self.location, self._keys), files.whole_folder(folder) as draft:
            base = self._base(at)
            sizes = self._sizes(base)
            if not sizes:
                raise UserError(f"there is nothing below {base} on S3", "make s3-check tells more")
            with console.progress(f"from {self.location}", sum(sizes.values())) as advance:
                for name in sizes:
                    path = draft / name
                    if name.endswith("/"):
                        path.mkdir(parents=True, exist_ok=True)
                        continue
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("wb") as file:
                        self._patient.download_fileobj(
                            self.location.bucket, base + name, file, Callback=advance, Config=PARTS
                        )

    def read(self, name: str) -> bytes | None:
        """None where there is no such object."""
        with told(self.location, self._keys):
            try:
                got = self._quick.get_object(Bucket=self.location.bucket, Key=self.prefix + name)
                return got["Body"].read()
            except ClientError as fault:
                if fault.response.get("Error", {}).get("Code") == "NoSuchKey":
                    return None
                raise

    def write(self, name: str, content: bytes) -> None:
        with told(self.location, self._keys):
            self._quick.put_object(
                Bucket=self.location.bucket, Key=self.prefix + name, Body=content
            )

    def list(self, prefix: str = "") -> list[str]:
        """Every name below this folder that begins so, in order."""
        with told(self.location, self._keys):
            sizes = self._sizes(self.prefix + prefix)
        return sorted(prefix + name for name in sizes)

    def remove(self, prefix: str) -> None:
        """Everything whose name begins so."""
        names = sorted(self.list(prefix), key=order.place, reverse=True)
        with told(self.location, self._keys):
            self._delete(self.prefix + name for name in names)

    def _base(self, folder: str) -> str:
        return f"{self.prefix}{folder}/" if folder else self.prefix

    def _sizes(self, base: str) -> dict[str, int]:
        """By what is left of each key behind the base."""
        pages = self._quick.get_paginator("list_objects_v2").paginate(
            Bucket=self.location.bucket, Prefix=base
        )
        found = (each for page in pages for each in page.get("Contents", []))
        return {each["Key"].removeprefix(base): each["Size"] for each in found}

    def _changed(
        self, wanted: Sequence[Local], base: str, there: dict[str, int]
    ) -> Sequence[Local]:
        same_size = [each for each in wanted if there.get(each.name) == each.size]
        sums = self._sums([base + each.name for each in same_size if each.path])
        return [
            each
            for each in wanted
            if each.name not in there or (each.path and sums.get(base + each.name) != each.sha256)
        ]

    def _copies(self, changed: Sequence[Local], base: str, known: str) -> dict[str, str]:
        """By hash, where S3 has that content already, and will still have it when it is copied."""
        sizes = {each.size for each in changed if each.size}
        if not known or not sizes:
            return {}
        alike = {known + name for name, size in self._sizes(known).items() if size in sizes}
        alike -= {base + each.name for each in changed}
        return {sha256: key for key, sha256 in self._sums(sorted(alike)).items() if sha256}

    def _sums(self, keys: Sequence[str]) -> dict[str, str]:
        """The hashes put beside the objects; S3's own ETag is none where a file went in parts."""

        def ask(key: str) -> str:
            head = self._quick.head_object(Bucket=self.location.bucket, Key=key)
            return head["Metadata"].get("sha256", "")

        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            return dict(zip(keys, pool.map(ask, keys), strict=True))

    def _put(
        self, each: Local, base: str, source: str | None, advance: Callable[[int], object]
    ) -> None:
        bucket, key = self.location.bucket, base + each.name
        if each.path is None:
            self._quick.put_object(Bucket=bucket, Key=key)
        elif source:
            self._patient.copy_object(
                Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": source}
            )
            advance(each.size)
        else:
            with each.path.open("rb") as file:
                self._patient.upload_fileobj(
                    file,
                    bucket,
                    key,
                    ExtraArgs={"Metadata": {"sha256": each.sha256}},
                    Callback=advance,
                    Config=PARTS,
                )

    def _renew(self, configs: Iterable[Local], base: str) -> None:
        """Triton loads afresh when something is newer than before, and what is gone is not: a
        version that was removed went on being served."""
        for config in configs:
            self._put(config, base, None, lambda _: None)

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._quick.delete_object(Bucket=self.location.bucket, Key=key)


def _configs_of(names: Iterable[str]) -> set[str]:
    return {f"{name.partition('/')[0]}/config.pbtxt" for name in names}
