"""Docker's engine: whether it is here, and what is done with a container of it."""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import cast

from docker.errors import APIError, DockerException, InvalidConfigFile, NotFound
from docker.models.containers import Container
from docker.utils.config import find_config_file

import docker
from scripts.base.errors import ROOM, UserError

OLDEST_COMPOSE = (2, 24)
INSTALL = "https://docs.docker.com/engine/install"


def why_not_docker() -> str | None:
    """None if containers can be built and run here; otherwise what is missing, and the remedy."""
    if not shutil.which("docker"):
        return f"Docker is not installed (see {INSTALL})"
    try:
        engine = docker.from_env(timeout=10)
        engine.ping()
    except (InvalidConfigFile, AttributeError, TypeError):
        config = cast(str, find_config_file())
        return f"{config} is not one of Docker's files (mend it, or remove it and log in again)"
    except (DockerException, OSError, ValueError) as fault:  # ValueError: of a wrong DOCKER_HOST
        if "Permission denied" in str(fault):
            return "Docker refuses this user (sudo usermod -aG docker $USER, then log in again)"
        if host := os.environ.get("DOCKER_HOST"):
            return f"no Docker engine answers at {host} (start it, or check DOCKER_HOST)"
        return "no Docker engine answers (start it: sudo systemctl start docker)"
    version = compose_version()
    if version is None:
        return f"Docker has no Compose plugin (see {INSTALL})"
    if version < OLDEST_COMPOSE:
        found, oldest = (".".join(map(str, v)) for v in (version, OLDEST_COMPOSE))
        return f"Docker Compose {found} is older than {oldest} (install a newer plugin)"
    return None


def why_not_served() -> str | None:
    """The same of a server: what its containers make is to be the user's."""
    if obstacle := why_not_docker():
        return obstacle
    with suppress(DockerException, OSError):  # a proxy before the engine may not let it be asked
        options = " ".join(docker.from_env(timeout=10).info().get("SecurityOptions") or [])
        if re.search(r"\bname=userns\b", options):
            return (
                "Docker gives containers other users here, who cannot own build/ "
                "(no userns-remap: docs/limits.md)"
            )
    return None


def compose_version() -> tuple[int, ...] | None:
    asked = subprocess.run(
        ["docker", "compose", "version", "--short"], capture_output=True, text=True
    )
    numbers = re.match(r"v?(\d+)\.(\d+)", asked.stdout.strip())
    return (int(numbers[1]), int(numbers[2])) if asked.returncode == 0 and numbers else None


def stop_all(containers: Iterable[Container]) -> None:
    """Stops each first, within its service's grace period; the relay ends by itself after its
    server."""
    found = list(containers)
    with ThreadPoolExecutor(max_workers=max(1, len(found))) as together:
        for _ in together.map(stop_and_remove, found):
            pass


def execute(container: Container, *command: str) -> tuple[int, str]:
    """A program in it: how it ends, and what it says."""
    try:
        ran = container.exec_run([*command])
    except APIError as fault:  # it does not run
        return 1, str(fault)
    return int(ran.exit_code or 0), cast(bytes, ran.output).decode(errors="replace")


def stop_and_remove(container: Container) -> None:
    with suppress(NotFound):
        container.stop()
    remove(container)


def remove(container: Container) -> None:
    try:
        container.remove(force=True)
    except APIError as fault:
        if fault.status_code not in (404, 409):  # gone already, or being removed
            raise
        with suppress(NotFound):
            container.wait(condition="removed", timeout=30)


def open_log(*command: str) -> subprocess.Popen[str]:
    """A program that shows a log; what it says as errors is among the lines."""
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


def require_done(
    ran: subprocess.CompletedProcess[str],
    cause: str,
    remedy: str = "make doctor shows what is wrong",
) -> None:
    """Raises UserError if the program failed: the cause, with the last line that it said of it."""
    if ran.returncode:
        said = last_line(ran.stderr)
        is_full = os.strerror(errno.ENOSPC).lower() in said.lower()
        raise UserError(f"{cause}: {said}", ROOM if is_full else remedy)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
