"""S3 for all other commands: installs and imports boto3 only if REPOSITORY is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import bootstrap
from scripts.settings.settings import Settings
from scripts.storage.location import Location, from_settings

if TYPE_CHECKING:
    from scripts.storage.remote import Remote


def require_reachable(settings: Settings) -> None:
    """Does nothing if REPOSITORY is a local folder, or if both keys have the right permissions."""
    if location := from_settings(settings):
        bootstrap.ensure("s3")
        from scripts.storage import check

        check.require_reachable(location, settings)


def remote(settings: Settings) -> Remote | None:
    """The live repository on S3; None if it is a local folder."""
    location = from_settings(settings)
    if location is None:
        return None
    bootstrap.ensure("s3")
    from scripts.storage.remote import Remote

    return Remote(location, settings)


def hand_over_keys(settings: Settings) -> None:
    """Writes the server's key to where a newly started server reads it."""
    if location := from_settings(settings):
        from scripts.storage import key_files

        key_files.write(key_files.HANDED, credentials_of_server(location, settings))


def credentials_of_server(location: Location, settings: Settings) -> str:
    """The server's key, as a file that start_server reads."""
    bootstrap.ensure("s3")
    from scripts.storage import credentials

    return credentials.of_server(settings, credentials.of_operator(location)).file()
