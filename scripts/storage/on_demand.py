"""The door to S3 for all other commands: boto3 is installed and loaded when REPOSITORY is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import bootstrap
from scripts.settings.settings import Settings
from scripts.storage.location import wished

if TYPE_CHECKING:
    from scripts.storage.remote import Remote


def require_reachable(settings: Settings) -> None:
    """Nothing when REPOSITORY is a folder here, or both keys may do there what they must."""
    if location := wished(settings):
        bootstrap.ensure("s3")
        from scripts.storage import check

        check.require_reachable(location, settings)


def remote(settings: Settings) -> Remote | None:
    """The live repository on S3; None when it is a folder here."""
    location = wished(settings)
    if location is None:
        return None
    bootstrap.ensure("s3")
    from scripts.storage.remote import Remote

    return Remote(location, settings)


def hand_over_keys(settings: Settings) -> None:
    """Puts the server's key where a server that is started now finds it."""
    if location := wished(settings):
        bootstrap.ensure("s3")
        from scripts.storage import credentials, key_files

        keys = credentials.of_server(settings, credentials.of_operator(location))
        key_files.write(key_files.HANDED, keys.file())
