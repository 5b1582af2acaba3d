"""Parses REPOSITORY=s3://… in Triton's syntax. What Triton would misunderstand is refused here with
a reason, because Triton has the same message for everything."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from extensions.s3.settings import repository
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

EXAMPLES = "s3://bucket/path on AWS, s3://https://host:port/bucket/path elsewhere"

# The characters that Triton's own pattern for these URLs accepts.
HOST = re.compile(r"[0-9a-zA-Z.-]+")
BUCKET = re.compile(r"[0-9a-z][0-9a-z.-]{1,61}[0-9a-z]")
FOLDER = re.compile(r"[0-9a-zA-Z._-]+")


@dataclass(frozen=True)
class Location:
    endpoint: str | None  # scheme://host:port; None: AWS
    bucket: str
    path: str

    def __str__(self) -> str:
        return "s3://" + "/".join(filter(None, (self.endpoint, self.bucket, self.path)))

    @property
    def tls(self) -> bool:
        return self.endpoint is None or self.endpoint.startswith("https://")

    @property
    def host(self) -> str:
        return self.endpoint.partition("://")[2].rpartition(":")[0] if self.endpoint else ""

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2]) if self.endpoint else 443

    def on_host(self, host: str) -> Location:
        scheme = "https" if self.tls else "http"
        return replace(self, endpoint=f"{scheme}://{host}:{self.port}")

    def place_beside(self, what: str) -> Location:
        return replace(self, path=f"{self.path}-{what}")


def from_settings(settings: Settings) -> Location | None:
    """None if the repository is the project's own folder."""
    url = repository.value_in(settings)
    return parse(url) if url else None


def parse(url: str) -> Location:
    def refuse(reason: str, remedy: str = f"write {EXAMPLES}") -> UserError:
        return UserError(f"REPOSITORY={url}: {reason}", remedy)

    if re.search(r"\s", url):
        raise refuse("it contains a space", "remove it")
    if re.match(r"https?://", url):
        raise refuse("s3:// is missing", f"write s3://{url}")
    if not url.startswith("s3://"):
        raise refuse("this is not an S3 address", f"{EXAMPLES}; empty REPOSITORY: a folder here")
    rest = url.removeprefix("s3://")
    scheme = found[0] if (found := re.match("https?://", rest)) else ""
    first, _, after = rest.removeprefix(scheme).partition("/")
    host, colon, port = first.partition(":")
    if scheme and not colon:
        port = "443" if scheme == "https://" else "80"
        raise refuse(
            f"the port of {host or 'the host'} is missing",
            f"Triton requires it: s3://{scheme}{host}:{port}/…",
        )
    if colon:
        if not HOST.fullmatch(host):
            raise refuse(f"'{host}' is not a host name")
        if not (port.isdecimal() and 0 < int(port) < 65536):
            raise refuse(f"'{port}' is not a valid port", "ports are 1 to 65535")
        endpoint = f"{scheme or 'http://'}{first}"
        bucket, _, path = after.partition("/")
    else:
        endpoint, bucket, path = None, first, after
    if not bucket:
        raise refuse("the bucket is missing")
    if not BUCKET.fullmatch(bucket):
        raise refuse(
            f"{bucket} is not a bucket name",
            "use 3 to 63 lower-case letters, digits, hyphens and dots",
        )
    if not path.strip("/"):
        raise refuse(
            "a folder inside the bucket is missing",
            f"add one; versions are stored beside it: {url.rstrip('/')}/models",
        )
    if path.endswith("/") or "//" in path:
        tidy = "/".join(filter(None, path.split("/")))
        raise refuse("it has one slash too many", str(Location(endpoint, bucket, tidy)))
    for folder in path.split("/"):
        if not FOLDER.fullmatch(folder) or folder in (".", ".."):
            raise refuse(
                f"Triton does not accept {folder} as a folder name",
                "use letters, digits, dots, hyphens and underscores",
            )
    return Location(endpoint, bucket, path)
