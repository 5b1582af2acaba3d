"""Passes the server's S3 key from a file to Triton's environment, where no listing of containers or
process arguments shows it."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

NAMES = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_DEFAULT_REGION",
}


def with_keys(environment: Mapping[str, str], file: Path) -> dict[str, str]:
    """The environment with this file's keys instead of any others."""
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(file.read_text())
    keys = {NAMES[name]: value for name, value in parsed["default"].items() if name in NAMES}
    others = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    return others | keys | {"AWS_EC2_METADATA_DISABLED": "true"}
