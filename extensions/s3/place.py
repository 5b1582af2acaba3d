"""The repository on S3, as the rest of the bundle asks for it. boto3 is installed and imported when
it is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from extensions.s3 import key_files
from extensions.s3.from_containers import address_from_containers
from extensions.s3.location import Location, from_settings
from scripts import bootstrap
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from extensions.s3.remote import Remote


def find(settings: Settings) -> S3 | None:
    location = from_settings(settings)
    return S3(location, settings) if location else None


class S3:
    title = "S3"
    compose_file = "compose.s3.yaml"

    def __init__(self, location: Location, settings: Settings) -> None:
        self._location, self._settings = location, settings

    @property
    def host(self) -> str:
        return self._location.host

    @property
    def port(self) -> int:
        return self._location.port

    @property
    def endpoint(self) -> str | None:
        return self._location.endpoint

    def require_reachable(self) -> None:
        """Both keys have the right permissions."""
        bootstrap.ensure("s3")
        from extensions.s3 import check

        check.require_reachable(self._location, self._settings)

    def require_reachable_from_containers(self) -> None:
        address_from_containers(self._location, self._settings)

    def open(self) -> Remote:
        bootstrap.ensure("s3")
        from extensions.s3.remote import Remote

        return Remote(self._location, self._settings)

    def hand_over_keys(self) -> Path:
        key_files.write(key_files.HANDED, self.read_key())
        return key_files.HANDED

    def read_key(self) -> str:
        bootstrap.ensure("s3")
        from extensions.s3 import credentials

        operator = credentials.of_operator(self._location)
        return credentials.of_server(self._settings, operator).file()

    def list_variables(self) -> dict[str, str]:
        return {"S3_URL": str(address_from_containers(self._location, self._settings))}

    def list_options(self) -> Iterable[str | Path]:
        return "--repository", str(self._location), "--s3-credentials", self.hand_over_keys()
