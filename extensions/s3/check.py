"""Tries on S3 what Triton will do, with both keys."""

from __future__ import annotations

from botocore.exceptions import ClientError

from extensions.s3 import credentials
from extensions.s3.client import connect
from extensions.s3.credentials import Keys
from extensions.s3.diagnosis import explain_faults
from extensions.s3.location import Location
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

# Beside the repository, which no server reads.
TRIAL = "-write-trial"


def require_reachable(location: Location, settings: Settings) -> None:
    """Silent if all is well, except for a note if the server may do more than it needs."""
    operator = credentials.of_operator(location)
    _list_and_read(location, operator, settings)
    server = credentials.of_server(settings, operator)
    if server == operator:
        console.note(
            "the server gets your own S3 key, which may write; give it a read-only key with "
            "S3_SERVER_CREDENTIALS"
        )
    else:
        _list_and_read(location, server, settings)


def examine(location: Location, settings: Settings) -> None:
    """The full check: also who may write, and whether there is anything to serve."""
    require_reachable(location, settings)
    operator = credentials.of_operator(location)
    with explain_faults(location, operator, settings):
        _write_and_remove(location, operator, settings)
    console.note(f"{operator.whose} {operator.key} lists, reads and writes {location}")
    server = credentials.of_server(settings, operator)
    if server != operator:
        _require_read_only(location, server, settings)
        console.note(f"{server.whose} {server.key} lists and reads, but cannot write")
    if not _first(location, operator, settings):
        console.note(f"there is nothing below {location} yet: make up puts it there")


def _list_and_read(location: Location, keys: Keys, settings: Settings) -> None:
    name = _first(location, keys, settings) or f"{location.path}/nothing"
    with explain_faults(location, keys, settings):
        try:
            got = connect(location, keys, settings).get_object(Bucket=location.bucket, Key=name)
            got["Body"].close()
        except ClientError as fault:
            if fault.response.get("Error", {}).get("Code") != "NoSuchKey":
                raise


def _first(location: Location, keys: Keys, settings: Settings) -> str | None:
    with explain_faults(location, keys, settings):
        listed = connect(location, keys, settings).list_objects_v2(
            Bucket=location.bucket, Prefix=f"{location.path}/", MaxKeys=1
        )
    return next((each["Key"] for each in listed.get("Contents", [])), None)


def _require_read_only(location: Location, keys: Keys, settings: Settings) -> None:
    with explain_faults(location, keys, settings):
        try:
            _write_and_remove(location, keys, settings)
        except ClientError as fault:
            if fault.response.get("Error", {}).get("Code") == "AccessDenied":
                return
            raise
    raise UserError(
        f"{keys.whose} {keys.key} may write to {location}",
        "remove s3:PutObject and s3:DeleteObject from it: a server only reads",
    )


def _write_and_remove(location: Location, keys: Keys, settings: Settings) -> None:
    client = connect(location, keys, settings)
    client.put_object(Bucket=location.bucket, Key=location.path + TRIAL)
    client.delete_object(Bucket=location.bucket, Key=location.path + TRIAL)
