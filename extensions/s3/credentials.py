"""Credentials for S3: the user's own, which may write, and the server's, which only reads."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass

import boto3
from botocore.exceptions import BotoCoreError

from extensions.s3.location import Location
from extensions.s3.settings import s3_server_credentials
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

# The usual region of self-hosted servers.
USUAL_REGION = "us-east-1"


@dataclass(frozen=True)
class Keys:
    whose: str  # for messages
    key: str
    secret: str
    token: str
    region: str

    def file(self) -> str:
        """In the format of ~/.aws/credentials, for start_server."""
        lines = {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_session_token": self.token,
            "region": self.region,
        }
        written = [f"{name} = {value}\n" for name, value in lines.items() if value]
        return "[default]\n" + "".join(written)


def of_operator(location: Location) -> Keys:
    """From where AWS's tools look: environment, profile, shared file, the machine's role."""
    try:
        session = boto3.Session()
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    except BotoCoreError as fault:
        raise UserError(f"cannot load S3 credentials: {fault}", _REMEDY) from None
    if frozen is None or not (frozen.access_key and frozen.secret_key):
        raise UserError("no S3 credentials found", _REMEDY)
    region = os.environ.get("AWS_REGION") or session.region_name or ""
    return Keys(
        "your key",
        frozen.access_key,
        frozen.secret_key,
        frozen.token or "",
        _region(region, location),
    )


def of_server(settings: Settings, operator: Keys) -> Keys:
    """From its own file; without one, it gets the user's."""
    path = s3_server_credentials.value_in(settings)
    if path is None:
        return operator
    where = f"S3_SERVER_CREDENTIALS={path}"
    try:
        parsed = configparser.ConfigParser(interpolation=None)
        parsed.read_string(path.read_text())
    except OSError as fault:
        raise UserError(
            f"{where} cannot be read: {fault.strerror}", "name a readable one"
        ) from None
    except (configparser.Error, UnicodeDecodeError):
        raise UserError(f"{where} is not a file like ~/.aws/credentials", _FILE) from None
    written = dict(parsed["default"]) if parsed.has_section("default") else {}
    try:
        key, secret = written["aws_access_key_id"], written["aws_secret_access_key"]
    except KeyError as fault:
        raise UserError(f"{where} has no {fault.args[0]} under [default]", _FILE) from None
    token, region = written.get("aws_session_token", ""), written.get("region", operator.region)
    return Keys("the server's key", key, secret, token, region)


def _region(region: str, location: Location) -> str:
    if region or location.endpoint:
        return region or USUAL_REGION
    raise UserError("the bucket's region is not set", "for example: export AWS_REGION=eu-central-1")


_REMEDY = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
    "(see extensions/s3/README.md)"
)
_FILE = "write [default], aws_access_key_id = … and aws_secret_access_key = … into it"
