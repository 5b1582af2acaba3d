"""The repository on S3, as the rest of the bundle asks for it. boto3 is installed and imported when
it is needed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bundle_serving.process.exposure import is_loopback
from extensions.s3.location import Location, from_settings
from extensions.s3.settings import s3_port
from scripts import bootstrap
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.settings.settings import Settings

if TYPE_CHECKING:
    from extensions.s3.remote import Remote

OWN_SERVER = "s3"  # its service name in compose.yaml

# Key files, readable by their owner and by the containers that get them.
FOLDER = ROOT / "build" / "run" / "s3"

# For the server of make s3-up.
OPERATOR = FOLDER / "operator.credentials"
SERVER = FOLDER / "server.credentials"

# For the running Triton server.
HANDED = FOLDER / "handed.credentials"


def find(settings: Settings) -> S3 | None:
    location = from_settings(settings)
    return S3(location, settings) if location else None


class S3:
    title = "S3"
    compose_file = "compose.s3.yaml"

    def __init__(self, location: Location, settings: Settings) -> None:
        self._location, self._settings = location, settings
        self.host, self.port, self.endpoint = location.host, location.port, location.endpoint

    def require_reachable(self) -> None:
        """Both keys have the right permissions."""
        bootstrap.ensure("s3")
        from extensions.s3 import check

        check.require_reachable(self._location, self._settings)

    def require_reachable_from_containers(self) -> None:
        address_from_containers(self._location, self._settings)

    def open(self) -> Remote:
        bootstrap.ensure("s3")
        from extensions.s3.access import Access
        from extensions.s3.remote import Remote

        return Remote(Access.of_operator(self._location, self._settings))

    def hand_over_keys(self) -> Path:
        write_keys(HANDED, self.read_key())
        return HANDED

    def read_key(self) -> str:
        bootstrap.ensure("s3")
        from extensions.s3.access import Access

        return Access.of_operator(self._location, self._settings).of_server().keys.file()

    def list_variables(self) -> dict[str, str]:
        return {"S3_URL": str(address_from_containers(self._location, self._settings))}

    def list_options(self) -> Iterable[str | Path]:
        return "--repository", str(self._location), "--s3-credentials", self.hand_over_keys()


def address_from_containers(location: Location, settings: Settings) -> Location:
    """The same location as seen from a container."""
    if not is_loopback(location.host):  # which in a container is the container
        return location
    if location.port == s3_port.value_in(settings) and OPERATOR.exists():
        return location.on_host(OWN_SERVER)
    raise UserError(
        f"containers cannot reach {location.endpoint}, which is this machine itself",
        f"if make s3-up started it: S3_PORT={location.port}; else give it an address that both "
        "reach, or use FLAVOUR=local",
    )


def write_keys(path: Path, content: str) -> None:
    """Others cannot enter the folder but could read the file: a container mounts the file alone and
    reads it as another user."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if FOLDER.stat().st_mode & 0o777 != 0o700:
        FOLDER.chmod(0o700)
    files.write(path, content, 0o444)
