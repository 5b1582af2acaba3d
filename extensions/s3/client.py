"""A connection to S3 that behaves like Triton's: exactly the configured address and region."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from extensions.s3.credentials import Keys
from extensions.s3.location import Location
from scripts.settings.settings import Settings

if TYPE_CHECKING:  # installed for type checking only
    from types_boto3_s3 import S3Client

CONNECT_S = 3

# Two attempts and the pause between them must fit into the 10 s for reporting a fault.
ANSWER_S = 4
# For a part of a large file, or a server-side copy.
STORED_S = 60


def connect(
    location: Location, keys: Keys, settings: Settings, answer_s: float = ANSWER_S
) -> S3Client:
    client: S3Client = _session().client(
        "s3",
        endpoint_url=location.endpoint,
        aws_access_key_id=keys.key,
        aws_secret_access_key=keys.secret,
        aws_session_token=keys.token or None,
        region_name=keys.region,
        verify=settings.ca_bundle or None,
        config=Config(
            connect_timeout=CONNECT_S,
            read_timeout=answer_s,
            retries={"mode": "standard", "total_max_attempts": 2},
            # Triton ignores AWS_ENDPOINT_URL (and the type stubs lack this option).
            ignore_configured_endpoint_urls=True,  # type: ignore[call-arg]
            # Every server checks the checksum in the signature; the newer ones,
            # at the end of a body, are rejected by many servers other than AWS.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={
                "payload_signing_enabled": True,
                "addressing_style": "path" if location.endpoint else "auto",
            },
        ),
    )
    client.meta.events.register_last("before-parameter-build.s3", _stay_in_the_region)
    return client


@cache
def _session() -> boto3.Session:
    """boto3 reads its description of S3's API only once."""
    return boto3.Session()


def _stay_in_the_region(context: dict[str, Any], **_: object) -> None:
    """boto3 would correct the region by itself and hide a mistake that breaks Triton."""
    context.setdefault("s3_redirect", {})["redirected"] = True
