"""Which of the bundle's flavours this machine serves, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from scripts.base.errors import UserError
from scripts.settings.settings import Settings
from scripts.stacks.local import LocalStack
from scripts.stacks.state import State

# What talks to Docker takes a third of a second to load, and is not needed where no container is.
if TYPE_CHECKING:
    from scripts.stacks.containers import DockerStack

Stack: TypeAlias = "DockerStack | LocalStack"

# Where the NVIDIA driver of a Linux host, or of the Windows around it, shows itself.
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/nvidia-smi"))


def choose(settings: Settings) -> tuple[str, str]:
    """The flavour's name, and the reason in a few words."""
    wanted = settings.flavour
    if wanted == "local":
        return "local", "FLAVOUR says so"
    from scripts.stacks.containers import why_not_docker

    obstacle = why_not_docker()
    if wanted:
        if obstacle:
            raise UserError(f"FLAVOUR={wanted} needs Docker, but {obstacle}", "or FLAVOUR=local")
        return wanted, "FLAVOUR says so"
    if obstacle:
        return "local", obstacle
    # With a driver there, a GPU that containers do not see is a fault to mend, not to pass over.
    if has_driver():
        return "gpu", "this machine has an NVIDIA driver"
    return "cpu", "Docker and Compose answer, and there is no NVIDIA driver"


def serving_or_chosen(settings: Settings, server: State | None) -> tuple[str, str]:
    """What is measured is what serves, unless another is asked for."""
    if server and not settings.flavour:
        return server.flavour, "it serves"
    return choose(settings)


def has_driver() -> bool:
    return any(driver.exists() for driver in DRIVERS)


def possible() -> list[str]:
    """The flavours whose servers can be asked after on this machine."""
    from scripts.stacks.containers import why_not_docker

    return ["local"] if why_not_docker() else ["gpu", "cpu", "local"]


def stack(flavour: str, settings: Settings) -> Stack:
    if flavour == "local":
        return LocalStack(settings)
    from scripts.stacks.containers import DockerStack
    from scripts.stacks.gpu import GpuStack

    return {"gpu": GpuStack, "cpu": DockerStack}[flavour](settings)
