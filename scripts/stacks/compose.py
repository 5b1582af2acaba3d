"""What Compose runs of this checkout: its command, its containers and its networks. Questions
about the engine go through the Docker SDK."""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import Any

from docker.errors import APIError, DockerException
from docker.models.containers import Container

import docker
from bundle_serving.process import main_pipeline, relayed
from scripts.artefacts import gpus
from scripts.base import console, parts
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import place
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import memory
from scripts.stacks.docker_engine import execute, remove, require_done, stop_all
from scripts.stacks.state import RUN, State

# The server as make up started it; `docker compose` finds it through COMPOSE_FILE in .env.
SERVED = RUN / "compose.yaml"

# Compose's working directory label: the checkout for make and for plain `docker compose`, or the
# folder of SERVED.
OF_CHECKOUT = (str(ROOT), str(SERVED.parent))
PROJECT, SERVICE, ONE_OFF, FOLDER = (
    f"com.docker.compose.{label}"
    for label in ("project", "service", "oneoff", "project.working_dir")
)

# What servers share with the relay that holds their ports.
RELAY_FOLDER = "/run/ports"

# What the images are built from.
SOURCES = (
    "docker",
    "requirements",
    "serving",
    ":(glob)kinds/*/serving/**",
    ":(glob)extensions/*/serving/**",
    "client",
    "scripts/base",
)


class Compose:
    def __init__(self, settings: Settings, files: Sequence[str]) -> None:
        self._settings, self._files = settings, files

    @cached_property
    def engine(self) -> docker.DockerClient:
        return docker.from_env(timeout=60)

    @cached_property
    def elsewhere(self) -> place.Place | None:
        """Where the repository lies, if not here."""
        return place.find(self._settings)

    @cached_property
    def project(self) -> str:
        return dotenv_file.project_name()

    def run(
        self,
        *arguments: str,
        wanted: State | None = None,
        quiet: bool = False,
        progress: str = "quiet",
        timeout: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        environment = self._environment(wanted)
        written = [*self._files]
        if self.elsewhere:
            written.append(self.elsewhere.compose_file)
            if wanted:
                environment |= self.elsewhere.list_variables()
        written += filter(None, [self._settings.compose_override])
        command = ["docker", "compose", "--progress", progress, "--project-name", self.project]
        command += [word for file in written for word in ("--file", file)]
        command += arguments
        return subprocess.run(
            command, cwd=ROOT, env=environment, text=True, capture_output=quiet, timeout=timeout
        )

    def _environment(self, wanted: State | None) -> dict[str, str]:
        """The values of the variables in the Compose files."""
        own = {
            "MEMORY": memory.limit(self._settings),
            "SHM_SIZE": memory.shm_size(self._settings),
            "START_TIMEOUT": f"{self._settings.start_timeout:f}",  # Compose takes no 1e3
            "FINGERPRINT": wanted.fingerprint if wanted else "",
            main_pipeline.VARIABLE: wanted.main if wanted else pipelines.main().ensemble,
            "CHECKOUT": str(ROOT),
            "FROM": "",  # what that names, make has taken in
            "REVISION": find_revision(),
            "REGISTRY": "",  # what is there, make has fetched
            # Where the engine keeps them, each build of the same would be another image.
            "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        }
        for each in parts.find("compose"):
            own |= each.list_variables()
        environment = os.environ | self._settings.values | own
        # The one from the user's shell would select a second time.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if self._settings.gpus != gpus.ALL:
            environment["CUDA_VISIBLE_DEVICES"] = self._settings.gpus
        return environment

    def read(self, *options: str, wanted: State | None = None) -> dict[str, Any]:
        """The configuration, as Compose resolves it."""
        asked = self.run(*options, "config", "--format", "json", wanted=wanted, quiet=True)
        require_done(asked, "Compose cannot read its configuration", "check COMPOSE_OVERRIDE")
        found: dict[str, Any] = json.loads(asked.stdout)
        return found

    def run_once(self, service: str, *command: str, options: Iterable[str] = ()) -> None:
        self.remove(service)  # left by a killed make: it would write to the same files
        try:
            ran = self.run("run", "--rm", "--no-deps", "-T", *options, service, *command)
        finally:
            self.remove(service)  # Ctrl-C ends Compose, but not always the container
        if ran.returncode:
            self.remove_networks(self.project)
            raise AlreadyReported(ran.returncode)

    def remove_service(self, service: str) -> bool:
        """Stops a service beside the server; returns whether it existed."""
        found = self.list_containers(f"{SERVICE}={service}")
        stop_all(found)
        return bool(found)

    def list_started_here(self) -> list[Container]:
        """This checkout's containers, under any project name; also those from before its folder was
        moved, and none of the folder that it is a copy of."""
        found = {each: find_folder(each) for each in self._list({"label": FOLDER})}
        written = dotenv_file.name_by_make()
        return [
            each
            for each, folder in found.items()
            if folder in OF_CHECKOUT
            or (each.labels[PROJECT] == written and not os.path.lexists(folder))
        ]

    def list_containers(self, *labels: str) -> list[Container]:
        # An image that Compose built has the project too, and so has what a swarm runs of it.
        return self._list({"label": [f"{PROJECT}={self.project}", FOLDER, *labels]})

    def find(self, service: str) -> Container | None:
        """Of two servers the one that has the ports."""
        found = self.list_containers(f"{SERVICE}={service}", f"{ONE_OFF}=False")
        if len(found) < 2:
            return next(iter(found), None)
        serving = _find_serving(found)
        return next((each for each in found if str(each.id).startswith(serving)), found[-1])

    def find_beside(self) -> list[Container]:
        """A server that has not taken over, or has not ended."""
        found = self.list_containers(f"{SERVICE}=server", f"{ONE_OFF}=False")
        serving = self.find("server")
        return [each for each in found if serving and each.id != serving.id]

    def _list(self, filters: dict[str, str | list[str] | bool]) -> list[Container]:
        try:
            return self.engine.containers.list(all=True, filters=filters, ignore_removed=True)
        except (DockerException, OSError) as fault:
            raise UserError(f"Docker does not answer ({fault})", "make doctor shows why") from None

    def require_own(self) -> None:
        """A name that the user chose may also be another checkout's, and Compose would then treat
        its containers as this one's."""
        for folder in {find_folder(each) for each in self.list_containers()} - {*OF_CHECKOUT}:
            raise UserError(
                f"the Compose project {self.project} belongs to {folder}",
                "give this one another COMPOSE_PROJECT_NAME",
            )

    def remove(self, service: str, name: str | None = None) -> None:
        for container in self.list_containers(f"{SERVICE}={service}"):
            if name is None or container.name == name:
                remove(container)

    def take_down(self, containers: Iterable[Container]) -> None:
        """Removes the networks too. Some may have been started under an earlier project name."""
        going = list(containers)
        names = {each.labels[PROJECT] for each in going} | {self.project}
        for name in sorted(names - {self.project}):
            console.note(f"removing containers that the Compose project {name} started here")
        stop_all(going)
        for name in names:
            self.remove_networks(name)

    def remove_networks(self, project: str) -> None:
        """Skips networks in use, possibly by stopped containers of another checkout."""
        label = f"{PROJECT}={project}"
        if not self._list({"label": [label, FOLDER]}):
            for network in self.engine.networks.list(filters={"label": label}):
                with suppress(APIError):
                    network.remove()


def find_folder(container: Container) -> str:
    """The folder that a container was started from."""
    return str(container.labels[FOLDER])


def _find_serving(servers: Iterable[Container]) -> str:
    """The name of the one that has the ports, as each of them sees it."""
    for server in servers:
        code, said = execute(server, "readlink", f"{RELAY_FOLDER}/{relayed.SERVING}")
        if code == 0 and said:
            return said.strip()
    return "nobody"


@cache
def list_staying() -> tuple[str, ...]:
    """Services that have their own commands, and stay when the server is replaced."""
    import yaml  # a tenth of a second, which commands that only ask do not have

    return tuple(yaml.safe_load((ROOT / "compose.extra.yaml").read_text())["services"])


@cache
def find_revision() -> str:
    """The last commit that changed what the images are built from, so that others restart nothing;
    empty if this checkout has no history, or changes that are in no commit."""
    asked = []
    try:
        for words in (("status", "--porcelain"), ("log", "-1", "--format=%H")):
            command = ["git", "-C", str(ROOT), *words, "--", *SOURCES]
            asked.append(subprocess.run(command, capture_output=True, text=True))
    except OSError:
        return ""
    changed, last = asked
    return "" if changed.returncode or changed.stdout else last.stdout.strip()
