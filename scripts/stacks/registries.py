"""A registry of images, looked at before anything is built for it."""

from __future__ import annotations

from docker.auth import load_config
from docker.errors import DockerException, InvalidRepository, NotFound

import docker
from scripts.base.errors import UserError
from scripts.base.text import printable
from scripts.stacks.images import name_released

# What registries say to those whom they do not know.
UNKNOWN = ("unauthorized", "denied", "no basic auth credentials", "authentication required")
SECONDS = 60


def require(registry: str) -> None:
    """Asked by the engine as for a push: over its network, with its certificates and proxies, and
    with the keys of `docker login`."""
    image, host = name_released(registry, "server"), registry.partition("/")[0]
    try:
        docker.from_env(timeout=SECONDS).images.get_registry_data(image)
    except NotFound:  # nothing is there yet
        return
    except InvalidRepository as fault:
        raise _refuse_name(registry, str(fault)) from None
    except (DockerException, OSError) as fault:
        said = printable(str(getattr(fault, "explanation", None) or fault))
        if "invalid reference" in said:
            raise _refuse_name(registry, said) from None
        if not any(each in said for each in UNKNOWN):
            raise UserError(
                f"no registry of images answers at {host}: {said}",
                "check PUSH, and whether this machine reaches it",
            ) from None
        # To those whom they know, some say so of what is not there yet.
        if "denied" in said and "expired" not in said and _has_key(host):
            return
        raise UserError(
            f"{host} does not let you in: {said}", f"docker login {host}, and check PUSH"
        ) from None


def _refuse_name(registry: str, said: str) -> UserError:
    return UserError(
        f"PUSH={registry} names no registry: {said}",
        "as in PUSH=registry.example/team, in lower case and without https://",
    )


def _has_key(host: str) -> bool:
    return bool(load_config().resolve_authconfig(host))
