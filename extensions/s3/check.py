"""Tries on S3 what Triton will do, with both keys."""

from botocore.exceptions import ClientError

from extensions.s3.access import Access
from extensions.s3.diagnosis import explain_faults
from extensions.s3.location import Location
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

# Beside the repository, which no server reads; in it, only a key is tried that must not write.
TRIAL = "-write-trial"


def require_reachable(location: Location, settings: Settings) -> tuple[Access, Access]:
    """Silent if all is well, except for a note if the server may do more than it needs. Returns
    the user's access and the server's."""
    operator = Access.of_operator(location, settings)
    _list_and_read(operator)
    server = operator.of_server()
    if server == operator:
        console.note(
            "the server gets your own S3 key, which may write; give it a read-only key with "
            "S3_SERVER_CREDENTIALS"
        )
    else:
        _list_and_read(server)
    return operator, server


def examine(location: Location, settings: Settings) -> None:
    """The full check: also who may write, and whether there is anything to serve."""
    operator, server = require_reachable(location, settings)
    with explain_faults(operator):
        for change in ("put_object", "delete_object"):
            _change(operator, change, operator.location.path + TRIAL)
    console.note(f"{operator.keys.whose} {operator.keys.key} lists, reads and writes {location}")
    if server != operator:
        _require_read_only(server, operator)
        console.note(f"{server.keys.whose} {server.keys.key} lists and reads, but cannot write")
    if not _first(operator):
        console.note(f"there is nothing below {location} yet: make up puts it there")


def _list_and_read(access: Access) -> None:
    location = access.location
    name = _first(access) or f"{location.path}/nothing"
    with explain_faults(access):
        try:
            got = access.connect().get_object(Bucket=location.bucket, Key=name)
            got["Body"].close()
        except ClientError as fault:
            if fault.response.get("Error", {}).get("Code") != "NoSuchKey":
                raise


def _first(access: Access) -> str | None:
    location = access.location
    with explain_faults(access):
        listed = access.connect().list_objects_v2(
            Bucket=location.bucket, Prefix=f"{location.path}/", MaxKeys=1
        )
    return next((each["Key"] for each in listed.get("Contents", [])), None)


def _require_read_only(access: Access, operator: Access) -> None:
    """Each right by itself, and for each place: a policy may grant any of them alone."""
    for name in (access.location.path + TRIAL, f"{access.location.path}/{TRIAL}"):
        for change in ("put_object", "delete_object"):
            if not _is_allowed(access, change, name):
                continue
            with explain_faults(operator):
                _change(operator, "delete_object", name)
            raise UserError(
                f"{access.keys.whose} {access.keys.key} may write to {access.location}",
                "remove s3:PutObject and s3:DeleteObject from it: a server only reads",
            )


def _is_allowed(access: Access, change: str, name: str) -> bool:
    with explain_faults(access):
        try:
            _change(access, change, name)
        except ClientError as fault:
            if fault.response.get("Error", {}).get("Code") == "AccessDenied":
                return False
            raise
    return True


def _change(access: Access, change: str, name: str) -> None:
    getattr(access.connect(), change)(Bucket=access.location.bucket, Key=name)
