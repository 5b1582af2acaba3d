"""The same location as seen from a container."""

from __future__ import annotations

from extensions.s3 import key_files
from extensions.s3.location import Location
from extensions.s3.settings import s3_port
from scripts.base.errors import UserError
from scripts.settings.settings import Settings

# Inside a container, these mean the container.
THIS_MACHINE = ("localhost", "127.0.0.1")
OWN_SERVER = "s3"  # its service name in compose.yaml


def address_from_containers(location: Location, settings: Settings) -> Location:
    if location.host not in THIS_MACHINE:
        return location
    if location.port == s3_port.value_in(settings) and key_files.OPERATOR.exists():
        return location.on_host(OWN_SERVER)
    raise UserError(
        f"containers cannot reach {location.endpoint}, which is this machine itself",
        f"if make s3-up started it: S3_PORT={location.port}; else give it an address that both "
        "reach, or use FLAVOUR=local",
    )
