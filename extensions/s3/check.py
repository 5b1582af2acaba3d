"""Tries on S3 what Triton will do, with both keys, and says what is wrong: cause and remedy. Triton
has the same message for all of it."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from s3transfer.exceptions import RetriesExceededError
from urllib3.exceptions import HTTPError

from extensions.s3.access import CONNECT_S, Access
from extensions.s3.location import Location
from extensions.s3.settings import s3_server_credentials
from scripts.base import console
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

# Beside the repository, which no server reads; in it, only a key is tried that must not write.
TRIAL = "-write-trial"
PAGE = "see extensions/s3/README.md"

MAY = {
    "ListObjectsV2": ("list", "s3:ListBucket"),
    "GetObject": ("read", "s3:GetObject"),
    "HeadObject": ("read", "s3:GetObject"),
    "DeleteObject": ("delete in", "s3:DeleteObject"),
}
MAY_WRITE = ("write to", "s3:PutObject")

# A key that no server knows, as long as AWS's keys.
NOBODY = "NOBODYHASTHISKEYHERE"


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


@contextmanager
def explain_faults(access: Access) -> Iterator[None]:
    """Turns any error of S3 or of the connection inside the block into one line."""
    try:
        yield
    except ClientError as fault:
        raise _explain_answer(fault, access) from None
    except (BotoCoreError, HTTPError, ResponseParserError, RetriesExceededError) as fault:
        raise _explain_silence(fault, access.location) from None


def _explain_answer(fault: ClientError, access: Access) -> UserError:
    location, keys = access.location, access.keys
    error = fault.response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    headers = fault.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    if code == "InvalidAccessKeyId":
        return UserError(
            f"S3 does not know {keys.whose} {keys.key}",
            f"check {keys.source}, and that it belongs to this server",
        )
    if code == "SignatureDoesNotMatch":
        if _knows_strangers(access):
            return UserError(
                f"the secret of {keys.whose} {keys.key} is wrong",
                "check it, character by character",
            )
        return UserError(
            f"the secret of {keys.whose} is wrong, or there is no key {keys.key}: this server "
            "sends the same message for both",
            "check both, character by character",
        )
    if code in ("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"):
        return UserError(
            f"the session token of {keys.whose} has expired: {message}", "log in again"
        )
    if code in ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraint"):
        right = error.get("Region") or headers.get("x-amz-bucket-region") or "the one of the bucket"
        return UserError(
            f"the region {keys.region} is wrong: {message}",
            f"write region = {right} into {keys.source}"
            if keys.source == s3_server_credentials.name
            else f"export AWS_REGION={right}",
        )
    if code == "NoSuchBucket":
        return UserError(
            f"there is no bucket {location.bucket}",
            "create it, or correct its name",
        )
    if code == "RequestTimeTooSkewed":
        return UserError(
            "the clock of this machine differs from S3's", "synchronise it, for example with NTP"
        )
    if code in ("AccessDenied", "403", "Forbidden"):
        verb, right = MAY.get(fault.operation_name, MAY_WRITE)
        return UserError(
            f"{keys.whose} {keys.key} may not {verb} {location}",
            f"grant it {right} (extensions/s3/README.md has the whole policy)",
        )
    if not location.tls and _speaks_tls(location):
        return _wants_https(location)
    return UserError(
        f"S3 refuses {fault.operation_name}: {code} {message}".rstrip(),
        PAGE,
    )


def _knows_strangers(access: Access) -> bool:
    """Whether this server has a different message for an unknown key, as AWS does."""
    if access.location.endpoint is None:
        return True
    stranger = replace(access, keys=replace(access.keys, key=NOBODY, token=""))
    try:
        stranger.connect().list_objects_v2(Bucket=access.location.bucket, MaxKeys=1)
    except ClientError as fault:
        return fault.response.get("Error", {}).get("Code") == "InvalidAccessKeyId"
    except BotoCoreError:
        pass
    return False


def _explain_silence(fault: Exception, location: Location) -> UserError:
    where = location.endpoint or "AWS"
    text = str(fault)
    if isinstance(fault, SSLError):
        return _tls(text, location)
    if isinstance(fault, ConnectTimeoutError | ReadTimeoutError):
        return UserError(
            f"{where} does not answer in time",
            "check that it is running and that no firewall blocks it",
        )
    if isinstance(fault, EndpointConnectionError):
        if location.endpoint and not _resolves(location.host):
            return UserError(f"unknown host {location.host}", "correct it in the address")
        return UserError(
            f"nothing is listening at {where}",
            "start S3 there (make s3-up), or correct the port",
        )
    if not location.tls and _speaks_tls(location):
        return _wants_https(location)
    if isinstance(fault, ConnectionClosedError | ResponseParserError):
        return UserError(f"{where} does not answer as S3 does", "check its port")
    if isinstance(fault, HTTPClientError | HTTPError | RetriesExceededError):
        return UserError(f"the connection to {where} broke: {text}", "try again")
    return UserError(f"the request to S3 failed: {text}", PAGE)


def _tls(text: str, location: Location) -> UserError:
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return UserError(
            f"{location.endpoint} speaks plain http",
            f"write http:// in the address: s3://http://{location.host}:{location.port}/…",
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return UserError(
            f"the certificate of {location.endpoint or 'AWS'} is not trusted: {reason}",
            "name the certificate that signed it: CA_BUNDLE=ca.pem",
        )
    return UserError(f"TLS with {location.endpoint or 'AWS'} failed: {text}", PAGE)


def _wants_https(location: Location) -> UserError:
    return UserError(
        f"{location.endpoint} speaks https",
        f"write https:// in the address: s3://https://{location.host}:{location.port}/…",
    )


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def _speaks_tls(location: Location) -> bool:
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((location.host, location.port), CONNECT_S) as plain,
            anyone.wrap_socket(plain, server_hostname=location.host),
        ):
            return True
    except OSError:
        return False
