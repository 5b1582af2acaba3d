"""One connection to S3, that asks as Triton will: where it says, and nowhere else."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from scripts.settings.settings import Settings
from scripts.storage.credentials import Keys
from scripts.storage.location import Location

if TYPE_CHECKING:  # installed for the type check alone
    from types_boto3_s3 import S3Client

CONNECT_S = 3

# Twice this, and the pause between, is less than the 10 s in which a fault is to be told.
ANSWER_S = 4
# For a part of a large file, or the copy of a whole one.
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
            # Triton knows nothing of AWS_ENDPOINT_URL (and the types nothing of this option).
            ignore_configured_endpoint_urls=True,  # type: ignore[call-arg]
            # The sum that every server checks is the one inside the signature; the newer ones,
            # at the end of a body, many servers other than AWS refuse.
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
    """What is known of S3's interface is read from boto3's files once."""
    return boto3.Session()


def _stay_in_the_region(context: dict[str, Any], **_: object) -> None:
    """boto3 would find the right region by itself, and hide what Triton stumbles over."""
    context.setdefault("s3_redirect", {})["redirected"] = True
