"""Which flavour this machine uses, and why; the stack of each, and the end of what it serves."""

from pathlib import Path

from scripts.base import console, parts
from scripts.base.errors import UserError
from scripts.settings.settings import FLAVOURS, Settings
from scripts.stacks import state
from scripts.stacks.local import LocalStack
from scripts.stacks.stack import Many, Stack
from scripts.stacks.state import State

# Where an NVIDIA driver is visible, on Linux or in WSL.
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/nvidia-smi"))


def choose(settings: Settings) -> tuple[str, str]:
    """The flavour's name and the reason for it."""
    wanted = settings.flavour
    if wanted == "local":
        return "local", "as FLAVOUR says"
    # The code that talks to Docker takes a third of a second to import, so only when needed.
    from scripts.stacks.docker_engine import why_not_served

    obstacle = why_not_served()
    if wanted:
        if obstacle:
            raise UserError(
                f"FLAVOUR={wanted} needs Docker, but {obstacle}", "fix that, or use FLAVOUR=local"
            )
        return wanted, "as FLAVOUR says"
    if obstacle:
        return "local", obstacle
    # If there is a driver, a GPU that containers cannot see is an error, not a reason for the CPU.
    if has_driver():
        return "gpu", "this machine has an NVIDIA driver"
    return "cpu", "Docker and Compose answer, and there is no NVIDIA driver"


def serving_or_chosen(settings: Settings, server: State | None) -> tuple[str, str]:
    """The running server's flavour, unless another one is requested."""
    if server and not settings.flavour:
        return server.flavour, "it serves"
    return choose(settings)


def has_driver() -> bool:
    return any(driver.exists() for driver in DRIVERS)


def possible() -> list[str]:
    """The flavours whose servers may exist on this machine."""
    from scripts.stacks.docker_engine import why_not_docker

    if why_not_docker():
        return ["local"]
    return ["gpu", "cpu", *FLAVOURS, "local"]


def stack(flavour: str, settings: Settings) -> Stack:
    if flavour == "local":
        return LocalStack(settings)
    if flavour in FLAVOURS:
        made: Stack = FLAVOURS[flavour].make_stack(settings)
        return made
    from scripts.stacks.containers import DockerStack
    from scripts.stacks.gpu import GpuStack

    return (GpuStack if flavour == "gpu" else DockerStack)(settings)


def stack_of(server: State) -> Stack:
    """The one that has started it."""
    return stack(server.flavour, server.settings_at_start)


def many_of(server: State) -> Many | None:
    """If there are several servers."""
    return stack_of(server).many if server.pipelines else None


def stop_server() -> None:
    """Stops everything that this project serves."""
    state.forget_damaged()
    known = state.load()
    # Without a record, any flavour may have left something.
    left = [stack_of(known)] if known else [stack(each, Settings.load()) for each in possible()]
    with console.waiting("stopping the server"):
        beside = [each.stop(known) for each in parts.find("beside")]
        stopped = [each.flavour for each in left if each.stop()]
    console.note(f"{' and '.join(stopped)} server stopped" if stopped else "no server was running")
    for each in filter(None, beside):
        console.note(each)
