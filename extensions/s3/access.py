"""Access to S3: with whose keys, and a connection that behaves like Triton's. The user's own keys
may write, the server's only read."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from extensions.s3.location import Location
from extensions.s3.settings import s3_server_credentials
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

if TYPE_CHECKING:  # installed for type checking only
    from types_boto3_s3 import S3Client

# The usual region of self-hosted servers.
USUAL_REGION = "us-east-1"
CONNECT_S = 3

# Two attempts and the pause between them must fit into the 10 s for reporting a fault.
ANSWER_S = 4
# For a part of a large file, or a server-side copy.
STORED_S = 60

_REMEDY = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE "
    "(see extensions/s3/README.md)"
)
_FILE = "write [default], aws_access_key_id = … and aws_secret_access_key = … into it"


@dataclass(frozen=True)
class Keys:
    whose: str  # for messages
    key: str
    secret: str
    token: str
    region: str
    source: str = "AWS_ACCESS_KEY_ID"  # what names it

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


@dataclass(frozen=True)
class Access:
    location: Location
    keys: Keys
    settings: Settings

    @classmethod
    def of_operator(cls, location: Location, settings: Settings) -> Access:
        return cls(location, _load_operators(location), settings)

    def of_server(self) -> Access:
        return replace(self, keys=_load_servers(self.settings, self.keys))

    def connect(self, answer_s: float = ANSWER_S) -> S3Client:
        """To exactly the configured address and region."""
        client: S3Client = _session().client(
            "s3",
            endpoint_url=self.location.endpoint,
            aws_access_key_id=self.keys.key,
            aws_secret_access_key=self.keys.secret,
            aws_session_token=self.keys.token or None,
            region_name=self.keys.region,
            verify=self.settings.ca_bundle or None,
            config=_bound(
                answer_s,
                # Triton ignores AWS_ENDPOINT_URL.
                ignore_configured_endpoint_urls=True,
                # Every server checks the checksum in the signature; the newer ones,
                # at the end of a body, are rejected by many servers other than AWS.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={
                    "payload_signing_enabled": True,
                    "addressing_style": "path" if self.location.endpoint else "auto",
                },
            ),
        )
        client.meta.events.register_last("before-parameter-build.s3", _stay_in_the_region)
        return client


def _bound(answer_s: float, **more: Any) -> Config:
    """By default, boto3 waits for three minutes where nobody answers."""
    return Config(
        connect_timeout=CONNECT_S,
        read_timeout=answer_s,
        retries={"mode": "standard", "total_max_attempts": 2},
        **more,
    )


def _load_operators(location: Location) -> Keys:
    """From where AWS's tools look: environment, profile, shared file, the machine's role."""
    try:
        session = botocore.session.get_session()
        session.set_default_client_config(_bound(ANSWER_S))  # of who lends a role's keys
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    except (BotoCoreError, ClientError) as fault:  # of a role, AWS itself may refuse the keys
        raise UserError(f"cannot load S3 credentials: {fault}", _REMEDY) from None
    if frozen is None or not (frozen.access_key and frozen.secret_key):
        raise UserError("no S3 credentials found", _REMEDY)
    region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not (region or location.endpoint):
        raise UserError(
            "the bucket's region is not set", "for example: export AWS_REGION=eu-central-1"
        )
    return Keys(
        "your key",
        frozen.access_key,
        frozen.secret_key,
        frozen.token or "",
        region or USUAL_REGION,
    )


def _load_servers(settings: Settings, operator: Keys) -> Keys:
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
    return Keys("the server's key", key, secret, token, region, s3_server_credentials.name)


@cache
def _session() -> boto3.Session:
    """boto3 reads its description of S3's API only once."""
    return boto3.Session()


def _stay_in_the_region(context: dict[str, Any], **_: object) -> None:
    """boto3 would correct the region by itself and hide a mistake that breaks Triton."""
    context.setdefault("s3_redirect", {})["redirected"] = True
