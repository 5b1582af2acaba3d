"""One bucket, request by request, with a cache of its objects' hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from boto3.s3.transfer import TransferConfig

from extensions.s3.access import STORED_S, Access

if TYPE_CHECKING:  # installed for type checking only
    from types_boto3_s3 import S3Client

Given = TypeVar("Given")
Got = TypeVar("Got")

AT_ONCE = 8
# Larger files are uploaded in parts, several at once, each signed separately; 8 MB also suits a
# slow connection. One that breaks off is taken up once more.
PARTS = TransferConfig(
    multipart_threshold=16 << 20, multipart_chunksize=8 << 20, num_download_attempts=2
)


@dataclass(frozen=True)
class Stored:
    """An object in a listing; its ETag changes with its content."""

    key: str
    size: int
    etag: str
    modified: datetime = field(compare=False)


class Bucket:
    def __init__(self, access: Access) -> None:
        self._access, self._name = access, access.location.bucket
        self._sums: dict[tuple[str, str], str] = {}  # by key and ETag

    @cached_property
    def _clients(self) -> tuple[S3Client, S3Client]:
        """Created together by the first listing, before threads could create them twice."""
        return self._access.connect(), self._access.connect(STORED_S)

    @property
    def _quick(self) -> S3Client:
        return self._clients[0]

    @property
    def _patient(self) -> S3Client:
        return self._clients[1]

    def list_below(self, prefix: str) -> dict[str, Stored]:
        """Objects by the rest of their key after the prefix."""
        pages = self._quick.get_paginator("list_objects_v2").paginate(
            Bucket=self._name, Prefix=prefix
        )
        return {
            each["Key"].removeprefix(prefix): Stored(
                each["Key"], each["Size"], each["ETag"], each["LastModified"]
            )
            for page in pages
            for each in page.get("Contents", [])
        }

    def sums(self, objects: Sequence[Stored]) -> dict[str, str]:
        """The hashes stored with the objects, by key, cached; S3's own ETag is not a hash for files
        uploaded in parts."""
        found = at_once(self._sum, objects)
        return {each.key: sha256 for each, sha256 in zip(objects, found, strict=True)}

    def newest_with(self, sha256: str, objects: Iterable[Stored]) -> str | None:
        """The key of the newest object with this content, the most likely one to be reused."""
        newest_first = sorted(objects, key=lambda each: each.modified, reverse=True)
        return next((each.key for each in newest_first if self._sum(each) == sha256), None)

    def _sum(self, stored: Stored) -> str:
        known = stored.key, stored.etag
        if known not in self._sums:
            head = self._quick.head_object(Bucket=self._name, Key=stored.key)
            self._sums[known] = head["Metadata"].get("sha256", "")
        return self._sums[known]

    def read(self, key: str) -> bytes:
        return self._quick.get_object(Bucket=self._name, Key=key)["Body"].read()

    def write(self, key: str, content: bytes = b"") -> None:
        self._quick.put_object(Bucket=self._name, Key=key, Body=content)

    def delete(self, key: str) -> None:
        self._quick.delete_object(Bucket=self._name, Key=key)

    def copy(self, source: str, key: str, sha256: str) -> None:
        done = self._patient.copy_object(
            Bucket=self._name, Key=key, CopySource={"Bucket": self._name, "Key": source}
        )
        self._sums[key, done["CopyObjectResult"]["ETag"]] = sha256

    def send(self, path: Path, key: str, sha256: str, advance: Callable[[int], object]) -> None:
        bucket, size, beside = self._name, path.stat().st_size, {"sha256": sha256}
        with path.open("rb") as file:
            if in_parts(size):
                extra = {"Metadata": beside}
                self._patient.upload_fileobj(file, bucket, key, extra, advance, PARTS)
            else:
                done = self._patient.put_object(Bucket=bucket, Key=key, Body=file, Metadata=beside)
                self._sums[key, done["ETag"]] = sha256
                advance(size)

    def download(self, key: str, path: Path, advance: Callable[[int], object]) -> None:
        with path.open("wb") as file:
            self._patient.download_fileobj(self._name, key, file, Callback=advance, Config=PARTS)


def in_parts(size: int) -> bool:
    return size >= PARTS.multipart_threshold


def at_once(do: Callable[[Given], Got], each_of: Iterable[Given]) -> list[Got]:
    """Results in the given order; raises the first error once all are done."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(do, each_of))
