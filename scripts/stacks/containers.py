"""Flavour cpu: the steps and the server as containers. Compose runs the stack; questions about
the engine go through the Docker SDK."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import psutil
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

import docker
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes, main_pipeline, relayed
from bundle_serving.process.exposure import PRIVATE_KEY
from bundle_serving.process.server_log import first_error
from scripts import bootstrap
from scripts.artefacts.manifest import read_pins
from scripts.artefacts.step import Place, Step
from scripts.base import console, files, lock, parts, ports
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import IN_CONTAINERS, PYTHON, ROOT
from scripts.base.ports import free_ports
from scripts.recipes import pipelines
from scripts.recipes.layout import Share
from scripts.repository import live, place
from scripts.settings import compose_env
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, certificates, exposure, handover, state, temporary
from scripts.stacks.many import Many
from scripts.stacks.memory import limit_mb
from scripts.stacks.state import State

WHEELS = ROOT / "docker" / "export" / "wheels"
OLDEST_COMPOSE = (2, 24)
INSTALL = "https://docs.docker.com/engine/install"

# The server as make up started it; `docker compose` finds it through COMPOSE_FILE in .env.
SERVED = ROOT / "build" / "run" / "compose.yaml"

# The images that a pack brought along, by service.
LOADED = ROOT / "build" / "images.json"

# The images of a release. Others are built from NVIDIA's, or beside the server.
RELEASED = ("export", "layout", "server")

# Compose's working directory label: the checkout for make and for plain `docker compose`, or the
# folder of SERVED.
OF_CHECKOUT = (str(ROOT), str(SERVED.parent))
PROJECT, SERVICE, ONE_OFF, FOLDER = (
    f"com.docker.compose.{label}"
    for label in ("project", "service", "oneoff", "project.working_dir")
)

# On the images that make builds: which checkout's they are, under any project name.
BUILT_BY = "triton-bundle.checkout"

# The server as it is started beside another one, until it takes over.
BESIDE = SERVED.with_name("beside.yaml")

# What servers share with the relay that holds their ports.
RELAY_FOLDER = "/run/ports"
# What two containers of one service cannot both have.
OF_ONE = ("container_name", "hostname", "ports", "network_mode")
# On a busy machine Triton may end at its start, where a process of a model waits too long.
MOST_STARTS = 3


# Each Python process shares a region with Triton that grows with the tensors passed through it. The
# largest picture accepted as an array, 50 megapixels, takes 600 MB.
SHM_BASE_MB, SHM_INSTANCE_MB = 768, 64


@cache
def list_staying() -> tuple[str, ...]:
    """Services that have their own commands, and stay when the server is replaced."""
    import yaml  # a tenth of a second, which commands that only ask do not have

    return tuple(yaml.safe_load((ROOT / "compose.extra.yaml").read_text())["services"])


def why_not_docker() -> str | None:
    """None if containers can be built and run here; otherwise what is missing, and the remedy."""
    if not shutil.which("docker"):
        return f"Docker is not installed (see {INSTALL})"
    try:
        engine = docker.from_env(timeout=10)
        engine.ping()
    except DockerException as fault:
        if "Permission denied" in str(fault):
            return "Docker refuses this user (sudo usermod -aG docker $USER, then log in again)"
        return "no Docker engine answers (start it: sudo systemctl start docker)"
    version = compose_version()
    if version is None:
        return f"Docker has no Compose plugin (see {INSTALL})"
    if version < OLDEST_COMPOSE:
        found, oldest = (".".join(map(str, v)) for v in (version, OLDEST_COMPOSE))
        return f"Docker Compose {found} is older than {oldest} (install a newer plugin)"
    return None


def compose_version() -> tuple[int, ...] | None:
    asked = subprocess.run(
        ["docker", "compose", "version", "--short"], capture_output=True, text=True
    )
    numbers = re.match(r"v?(\d+)\.(\d+)", asked.stdout.strip())
    return (int(numbers[1]), int(numbers[2])) if asked.returncode == 0 and numbers else None


class DockerStack:
    flavour = "cpu"
    many: Many | None = None
    compose_files: tuple[str, ...] = ("compose.yaml",)
    images: tuple[str, ...] = ("export", "server")
    other_layers = 1  # of the server's image, the last: they take networks in, and do not serve
    image_suffix = ""
    # The service whose container runs a step.
    services: ClassVar[Mapping[Place, str]] = {
        Place.EXPORT: "export",
        Place.SERVER: "engine",
        Place.ADOPT: "engine",
    }
    run_dir = "/run/triton"  # in the container: writable, and programs may run from it
    # A container that does not start is removed, and its log with it.
    log_hint = "see the whole log: docker compose up server"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _engine(self) -> docker.DockerClient:
        return docker.from_env(timeout=60)

    @cached_property
    def _elsewhere(self) -> place.Place | None:
        return place.find(self._settings)

    def _hand_over_keys(self) -> None:
        if self._elsewhere:
            self._elsewhere.hand_over_keys()

    def _image(self, service: str) -> str:
        return f"{self.project}-{service}{self.image_suffix}"

    @cached_property
    def project(self) -> str:
        return compose_env.project_name()

    def prepare(self) -> None:
        self._require_own_project()
        if self._elsewhere:  # refused before anything is built
            self._elsewhere.require_reachable_from_containers()
        self.build("server")
        certificates.place(self._settings)
        needs_certificate = exposure.exposure_of(self._settings).certificate is not None
        readable = admin_key.container_can_read() and lock.container_can_read()
        if needs_certificate or not (readable and live.REPOSITORY.is_dir()):
            hosts = f"ALLOWED_HOSTS={','.join(certificates.names(self._settings))}"
            self._run("init", options=["--env", hosts])
        admin_key.ensure()
        lock.hands_off_file()

    def _require_own_project(self) -> None:
        """A name that the user chose may also be another checkout's, and Compose would then treat
        its containers as this one's."""
        for folder in {_folder(each) for each in self._containers()} - {*OF_CHECKOUT}:
            raise UserError(
                f"the Compose project {self.project} belongs to {folder}",
                "give this one another COMPOSE_PROJECT_NAME",
            )

    def _take_down(self, containers: Iterable[Container]) -> None:
        """Removes the networks too. Some may have been started under an earlier project name."""
        going = list(containers)
        names = {each.labels[PROJECT] for each in going} | {self.project}
        for name in sorted(names - {self.project}):
            console.note(f"removing containers that the Compose project {name} started here")
        _remove_containers(going)
        for name in names:
            self.remove_networks(name)

    def run_step(self, step: Step, *arguments: str | Path) -> None:
        """Paths inside the project exist in the container; others are mounted."""
        self.prepare_place(step.place)
        options = [f"--env=COLUMNS={console.out.width}"] if console.out.is_terminal else []
        options += ["--env=JSON=1"] if console.Form.is_json else []
        words: list[str] = []
        for number, argument in enumerate(arguments):
            if not isinstance(argument, Path):
                words.append(argument)
            elif argument.is_relative_to(ROOT / "build"):
                words.append(str(Path(IN_CONTAINERS) / argument.relative_to(ROOT)))
            else:
                self._require_readable(argument)
                inside = f"/inputs/{number}/{argument.name}"
                options += ["--volume", f"{argument}:{inside}:ro"]
                words.append(inside)
        _give(ROOT / "build")
        command = ("as-owner", "python3", "-m", step.module, *words)
        self._run(self.services[step.place], *command, options=options)

    def _run(self, service: str, *command: str, options: Iterable[str] = ()) -> None:
        self.remove(service)  # left by a killed make: it would write to the same files
        try:
            ran = self.compose("run", "--rm", "--no-deps", "-T", *options, service, *command)
        finally:
            self.remove(service)  # Ctrl-C ends Compose, but not always the container
        if ran.returncode:
            self.remove_networks(self.project)
            raise AlreadyReported(ran.returncode)

    def prepare_place(self, place: Place) -> None:
        if place is Place.EXPORT:
            _fetch_torch()
            self.build("export")

    def disk(self) -> Path | None:
        """Where the engine keeps its images, if that is visible from here."""
        root = Path(self._engine.info()["DockerRootDir"])
        return root if root.is_dir() else None

    def has_images(self) -> bool:
        """Those that a server is made with."""
        made_with = ("export", "server")
        return all(self._engine.images.list(self._image(service)) for service in made_with)

    def version(self) -> str:
        """The server program's version, for the fingerprint."""
        image = self._find_image().attrs
        layers, config = image["RootFS"]["Layers"], image["Config"]
        what = [layers[: len(layers) - self.other_layers], config["Env"], config["Cmd"]]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    def _find_image(self) -> Any:
        name = self._image("server")
        try:
            return self._engine.images.get(name)
        except (DockerException, OSError) as fault:
            raise UserError(f"the image {name} is not available ({fault})", "run make up") from None

    def start(self, wanted: State) -> None:
        self._take_down(
            each
            for each in self._of_checkout()
            if each.labels[PROJECT] != self.project and each.labels[SERVICE] not in list_staying()
        )
        ports.require_free(self._settings.bind, self._settings.ports)
        self._hand_over_keys()
        wanted.save()
        files.write(SERVED, json.dumps(self._configure(wanted), indent=2) + "\n")
        compose_env.write(self.project, SERVED)
        self._compose_up(SERVED)

    def _compose_up(self, file: Path, *options: str) -> None:
        command = ["docker", "compose", "--project-name", self.project, "--file", str(file)]
        command += ["--project-directory", str(ROOT), "up", "--detach", "--no-build", *options]
        started = subprocess.run([*command, "server"], cwd=ROOT, capture_output=True, text=True)
        if started.returncode:
            raise UserError(
                f"Docker cannot start the server: {last_line(started.stderr)}",
                "make doctor shows what is wrong",
            )

    def why_alone(self, known: State) -> str | None:
        """Why no other server can come up beside this one, and take over from it."""
        if known.flavour != self.flavour:
            return "it is of another flavour"
        if not (self.alive("ports") and SERVED.exists()):
            return "it is of an earlier release, and holds its ports itself"
        its = known.settings_at_start
        if (its.bind, its.ports) != (self._settings.bind, self._settings.ports):
            return "it gets other ports"
        server = self._configure(known)["services"]["server"]
        if own := next((name for name in OF_ONE if name in server), None):
            return f"COMPOSE_OVERRIDE gives it a {own}, which two cannot share"
        memory = self.memory()
        return handover.explain_memory(memory[0]) if memory else None

    def start_beside(self, known: State, wanted: State, pipelines: Iterable[str]) -> State:
        """Nothing comes to it before it takes over. Its keeper knows what it is to load."""
        state.REFUSED.unlink(missing_ok=True)
        self._hand_over_keys()
        config = self._configure(wanted)
        # The relay stays, and with it what is open.
        config["services"]["ports"] = json.loads(SERVED.read_text())["services"]["ports"]
        files.write(BESIDE, json.dumps(config, indent=2) + "\n")
        try:
            self._compose_up(BESIDE, "--no-recreate", "--scale", "server=2")
        except BaseException:
            self.withdraw(wanted)
            raise
        return wanted

    def why_unready(self, new: State) -> str | None:
        """Of the server beside another one, to which the ports do not lead."""
        container = next(iter(self._find_beside()), None)
        if container is None or container.attrs["RestartCount"] >= MOST_STARTS:
            said = container.logs().decode(errors="replace") if container else ""
            raise UserError(
                f"the new server stopped during its start: {first_error(said) or 'it is gone'}",
                state.SERVES_ON,
            )
        notes = self._read_notes(container)
        if not notes.get("ready"):
            return str(notes.get("reason", "its keeper has written no notes"))
        _, coming = _execute(container, "cat", f"{self.run_dir}/{keeper_notes.COMING}")
        if coming != "[]":
            return f"it loads {coming}"
        code, said = _execute(container, *container.attrs["Config"]["Healthcheck"]["Test"][1:])
        return last_line(said) if code else None

    def take_over(self, known: State, new: State) -> None:
        """Once it answers."""
        old, (beside,) = self._container("server"), self._find_beside()
        code, said = _execute(
            beside, "python3", "-m", "bundle_serving.process.relayed", RELAY_FOLDER
        )
        if code:
            cause = f"the new server does not get the ports ({last_line(said)})"
            raise UserError(cause, "make up tries it again")
        new.save()
        BESIDE.replace(SERVED)
        if old:
            _execute(old, "python3", "-m", "bundle_serving.drain", self.run_dir)
            _stop_and_remove(old)

    def withdraw(self, new: State) -> None:
        """The server from before serves on."""
        for container in self._find_beside():
            state.REFUSED.write_bytes(container.logs())
            _remove(container)
        BESIDE.unlink(missing_ok=True)

    def end_strays(self, known: State) -> None:
        """What a make that was killed has left of a hand-over."""
        _remove_containers(self._find_beside())

    def rehearse(self) -> None:
        """Whether a server starts with what is laid out, before the one from before is stopped."""
        needed, free = self.memory(), psutil.virtual_memory().available
        if self.flavour != "cpu" or self._elsewhere or (needed and needed[0] > free):
            return
        console.note("trying the new server, on ports of its own")
        try:
            with self.temporary(live.REPOSITORY, state.REFUSED, pipelines.main().ensemble):
                pass
        except UserError as fault:
            raise UserError(fault.cause, state.SERVES_ON) from None
        state.REFUSED.unlink()

    def _configure(self, wanted: State) -> dict[str, Any]:
        """The server's configuration as started now, and the services beside it, without the build
        steps."""
        asked = self.compose(
            "--profile", "*", "config", "--format", "json", wanted=wanted, quiet=True
        )
        if asked.returncode:
            raise UserError(
                f"Compose cannot read its configuration: {last_line(asked.stderr)}",
                "check COMPOSE_OVERRIDE",
            )
        configured: dict[str, Any] = json.loads(asked.stdout)
        kept = ("server", "ports", *list_staying())
        services = {name: configured["services"][name] for name in kept}
        services["server"]["depends_on"] = {"ports": {"condition": "service_started"}}
        # As long as it runs it is the same one, whatever image is built.
        services["ports"]["image"] = str(self._find_image().id)
        return configured | {"services": services}

    @contextmanager
    def temporary(self, repository: Path, log: Path, pipeline: str) -> Iterator[tuple[str, str]]:
        """A server for the duration of a block; yields its HTTP and gRPC addresses."""
        http, grpc = free_ports(2)
        name = f"{self.project}-temporary-{http}"
        options = ["--name", name, f"--volume={repository}:/models:ro"]
        options += ["--env=BIND=127.0.0.1", "--env=TLS_CERT=", "--env=RELAY_FOLDER="]
        options += [f"--env={main_pipeline.VARIABLE}={pipeline}"]
        options += [f"--publish=127.0.0.1:{http}:8000", f"--publish=127.0.0.1:{grpc}:8001"]
        ran = self.compose("run", "--detach", "--no-deps", *options, "server", quiet=True)
        if ran.returncode:
            self.remove("server", name)
            raise UserError(
                f"Docker cannot start a private server: {last_line(ran.stderr)}",
                "make doctor shows what is wrong",
            )
        container = self._engine.containers.get(name)

        def alive() -> bool:
            container.reload()
            return container.status in ("created", "running")

        address = f"127.0.0.1:{http}"
        try:
            temporary.until_it_answers(
                "the server",
                lambda: reason_not_to_trust(address, pipeline),
                alive,
                lambda: container.logs().decode(errors="replace"),
            )
            yield address, f"127.0.0.1:{grpc}"
        finally:
            log.write_bytes(container.logs())
            container.remove(force=True)
            self.remove_networks(self.project)

    def memory(self) -> tuple[int, int] | None:
        """Bytes that the server uses, and its limit, if Docker knows them."""
        container = self._container("server")
        seen: Any = container.stats(stream=False) if container else {}
        memory = seen.get("memory_stats", {})
        if not {"limit", "usage"} <= memory.keys():
            return None
        cached = memory.get("stats", {}).get("inactive_file", 0)
        return int(memory["usage"] - cached), int(memory["limit"])

    def root(self) -> int | None:
        """The number that the server's first process has outside its container."""
        container = self._container("server")
        return int(container.attrs["State"]["Pid"]) or None if container else None

    def ask_in_server(self, *command: str) -> str:
        """What a program says in its container."""
        container = self._container("server")
        return _execute(container, *command)[1] if container else ""

    def room(self) -> int | None:
        """Bytes of memory that the server may still use."""
        memory = self.memory()
        return memory[1] - memory[0] if memory else None

    def keeper_state(self) -> dict[str, Any]:
        return self._read_notes(self._container("server"))

    def _read_notes(self, container: Container | None) -> dict[str, Any]:
        if not container or container.status != "running":
            return {}
        # Of a program that ends at once, a busy engine may give the exit code and no output.
        code, said = _execute(container, "cat", f"{self.run_dir}/{keeper_notes.STATE}")
        return keeper_notes.parse_notes(said.encode()) if code == 0 else {}

    def alive(self, service: str = "server") -> bool:
        container = self._container(service)
        # Docker's status is "restarting" between two failures of a server that cannot start.
        return bool(container and container.status in ("created", "running"))

    def there(self) -> bool:
        """Whether anything is left of a server, which may hold its ports."""
        return any(self._is_to_stop(each) for each in self._of_checkout())

    def find_held_ports(self) -> set[int]:
        """By what was started from this checkout, also by Compose alone."""
        published = (ports for each in self._of_checkout() for ports in each.ports.values())
        return {int(port["HostPort"]) for ports in published for port in ports or ()}

    def stop(self) -> bool:
        """Removes what was started from this checkout under any project name, and its networks;
        returns whether a server of this flavour was among it."""
        going = [each for each in self._of_checkout() if self._is_to_stop(each)]
        self._take_down(going)
        state.forget()
        if SERVED.exists():
            SERVED.unlink()
            compose_env.write(self.project)
        return any(each.labels[SERVICE] == "server" for each in going)

    def _is_to_stop(self, container: Container) -> bool:
        image = str(container.attrs["Config"]["Image"])
        another_flavours = not re.search(rf"-server{self.image_suffix}(:[\d.]+)?$", image)
        service = container.labels[SERVICE]
        return service not in list_staying() and not (service == "server" and another_flavours)

    def log(self, service: str = "server") -> str:
        container = self._container(service)
        return container.logs().decode(errors="replace") if container else ""

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Writes the whole log, and goes on where it is followed."""
        container = self._container("server")
        if container is None:
            raise UserError("there is no container of the server", "start one: make up")
        return subprocess.Popen(
            ["docker", "logs", *(["--follow"] if follow else []), str(container.id)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def remove_service(self, service: str) -> bool:
        """Stops a service beside the server; returns whether it existed."""
        found = self._container(service) is not None
        if found:
            self.compose("rm", "--stop", "--force", service, quiet=True)
        return found

    def let_containers_read(self, path: Path) -> None:
        """A secret in build/, through the group of their user."""
        inside = str(Path(IN_CONTAINERS) / path.relative_to(ROOT))
        script = f'chgrp {admin_key.NOBODY} "$0" && chmod 640 "$0"'
        self._run("init", "sh", "-c", script, inside)

    def remove_all(self) -> None:
        """Also what `make down` keeps, and the images. Docker keeps what another checkout of the
        same name uses."""
        self._take_down(self._of_checkout())
        for volume in self._engine.volumes.list(filters={"label": f"{PROJECT}={self.project}"}):
            with suppress(APIError):
                volume.remove()
        for service in (*self.images, "layout", *list_staying()):
            self.remove_image(self._image(service))
        for image in self._engine.images.list(filters={"label": f"{BUILT_BY}={ROOT}"}):
            for name in image.tags:
                self.remove_image(name)

    def list_replaced_images(self) -> list[tuple[str, int, datetime]]:
        """Those of this project whose name a newer build took: id, bytes, when it was built."""
        filters = {"dangling": True, "label": f"{PROJECT}={self.project}"}
        return [
            (str(each.id), each.attrs["Size"], datetime.fromisoformat(each.attrs["Created"]))
            for each in self._engine.images.list(filters=filters)
        ]

    def sbom(self) -> str | None:
        """What the server's image carries, as CycloneDX; None if it is not built here."""
        name = self._image("server")
        if not self._engine.images.list(name):
            return None
        # Attached: the engine's log, as the SDK reads it, was once cut off on a busy machine.
        command = ["docker", "run", "--rm", "--network", "none", name, "cat"]
        command.append("/usr/share/triton-bundle/sbom.json")
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    def push(self, service: str, name: str) -> str:
        """Pushes an image as this name, with the keys of `docker login`; returns the name with its
        digest."""
        self._engine.images.get(self._image(service)).tag(name)
        pushed = subprocess.run(["docker", "push", name], capture_output=True, text=True)
        if pushed.returncode:
            raise UserError(
                f"{name} cannot be pushed: {last_line(pushed.stderr)}",
                f"log in first (docker login {name.partition('/')[0]}), and check PUSH",
            )
        exact = f"{name.rpartition(':')[0]}@{self.digest(name)}"
        if shutil.which("cosign"):
            signed = subprocess.run(["cosign", "sign", "--yes", exact])
            if signed.returncode:
                raise AlreadyReported(signed.returncode)
        return exact

    @staticmethod
    def digest(name: str) -> str:
        """Of what was pushed or pulled under this name here; empty where nothing is known of it."""
        repository = name.rpartition(":")[0]
        try:
            digests = docker.from_env(timeout=60).images.get(name).attrs["RepoDigests"]
        except (DockerException, OSError):
            return ""
        found = (str(each).partition("@") for each in digests)
        return next((digest for known, _, digest in found if known == repository), "")

    def remove_image(self, name: str) -> None:
        with suppress(APIError):  # a container uses it, or another image is built on it
            self._engine.images.remove(name)

    def images_of_folder_name(self) -> list[str]:
        """Images from the time when the folder's name alone was the project's name."""
        if self.project == compose_env.folder_name():
            return []
        services = (*self.images, *(() if self.image_suffix else ("layout", *list_staying())))
        names = [f"{compose_env.folder_name()}-{each}{self.image_suffix}" for each in services]
        return [name for name in names if self._engine.images.list(name)]

    def _of_checkout(self) -> list[Container]:
        """This checkout's containers, under any project name."""
        return [each for each in self._list({"label": FOLDER}) if _folder(each) in OF_CHECKOUT]

    def _containers(self, *labels: str) -> list[Container]:
        # An image that Compose built has the project too, and so has what a swarm runs of it.
        return self._list({"label": [f"{PROJECT}={self.project}", FOLDER, *labels]})

    def _list(self, filters: dict[str, str | list[str] | bool]) -> list[Container]:
        try:
            return self._engine.containers.list(all=True, filters=filters, ignore_removed=True)
        except (DockerException, OSError) as fault:
            raise UserError(f"Docker does not answer ({fault})", "make doctor shows why") from None

    def _container(self, service: str) -> Container | None:
        """Of two servers the one that has the ports."""
        found = self._containers(f"{SERVICE}={service}", f"{ONE_OFF}=False")
        if len(found) < 2:
            return next(iter(found), None)
        serving = _find_serving(found)
        return next((each for each in found if str(each.id).startswith(serving)), found[-1])

    def _find_beside(self) -> list[Container]:
        """A server that has not taken over, or has not ended."""
        found = self._containers(f"{SERVICE}=server", f"{ONE_OFF}=False")
        serving = self._container("server")
        return [each for each in found if serving and each.id != serving.id]

    def remove(self, service: str, name: str | None = None) -> None:
        for container in self._containers(f"{SERVICE}={service}"):
            if name is None or container.name == name:
                _remove(container)

    def remove_networks(self, project: str) -> None:
        """Skips networks in use, possibly by stopped containers of another checkout."""
        label = f"{PROJECT}={project}"
        if not self._list({"label": [label, FOLDER]}):
            for network in self._engine.networks.list(filters={"label": label}):
                with suppress(APIError):
                    network.remove()

    def save(self, service: str, file: Path) -> None:
        """Writes an image to a file, under a name that is the same in every checkout."""
        name = f"triton-bundle-{service}"
        self._engine.images.get(self._image(service)).tag(name)
        try:
            with file.open("wb") as out:
                subprocess.run(["docker", "save", name], stdout=out, check=True)
        finally:
            self.remove_image(name)

    def load(self, service: str, file: Path) -> None:
        """Takes an image from such a file; it is then not built here."""
        name = f"triton-bundle-{service}"
        with file.open("rb") as saved:
            loaded = subprocess.run(
                ["docker", "load", "--quiet"], stdin=saved, capture_output=True, text=True
            )
        if loaded.returncode:
            raise UserError(
                f"Docker cannot load {file.name}: {last_line(loaded.stderr)}",
                "make doctor shows what is wrong",
            )
        image = self._engine.images.get(name)
        image.tag(self._image(service))
        self.remove_image(name)
        files.write(LOADED, json.dumps(_read_loaded() | {service: image.id}) + "\n")

    def build(self, service: str, announced: bool = True) -> None:
        if self._is_loaded(service) or self._is_released(service):
            return
        if announced:
            console.note(f"image {self._image(service)}: building if needed …")
        watched = announced and console.out.is_terminal
        built = self.compose("build", service, quiet=not watched, progress="auto")
        if built.returncode:
            why = "see above" if watched else last_line(built.stderr)
            raise UserError(
                f"the image of {service} cannot be built: {why}",
                "try again (behind a company proxy, set CA_BUNDLE)",
            )

    def _is_released(self, service: str) -> bool:
        """Whether the image is the one of REGISTRY, which is fetched where it is not here."""
        if not self._settings.registry or service not in RELEASED or self.image_suffix:
            return False
        released = name_released(self._settings.registry, service)
        if not self._engine.images.list(released):
            console.note(f"image {released}: fetching …")
            fetched = subprocess.run(["docker", "pull", released], capture_output=True, text=True)
            if fetched.returncode:
                console.note(f"it cannot be had ({last_line(fetched.stderr)})")
                return False
        self._engine.images.get(released).tag(self._image(service))
        return True

    def _is_loaded(self, service: str) -> bool:
        """Whether the image is the one that a pack brought along."""
        wanted = _read_loaded().get(service)
        found = self._engine.images.list(self._image(service)) if wanted else []
        return any(each.id == wanted for each in found)

    @property
    def memory_limit(self) -> str:
        return self._settings.memory or f"{limit_mb(self._settings)}m"

    @property
    def shm_size(self) -> str:
        shares = Share.preprocessing(self._settings), Share.network(self._settings)
        instances = sum(share.instances for share in shares)
        return f"{SHM_BASE_MB + SHM_INSTANCE_MB * instances}m"

    def _require_readable(self, path: Path) -> None:
        """By the steps' user, who differs from root if root runs make."""
        wanted = 0o5 if path.is_dir() else 0o4
        if os.getuid() == 0 and path.exists() and path.stat().st_mode & wanted != wanted:
            raise UserError(
                f"{path} is readable by root only, and the containers do not run as root",
                f"chmod -R a+rX {path}",
            )

    def _environment(self, wanted: State | None) -> dict[str, str]:
        """The values of the variables in the Compose files."""
        own = {
            "MEMORY": self.memory_limit,
            "SHM_SIZE": self.shm_size,
            "FINGERPRINT": wanted.fingerprint if wanted else "",
            main_pipeline.VARIABLE: wanted.main if wanted else pipelines.main().ensemble,
            "CHECKOUT": str(ROOT),
            "FROM": "",  # what that names, make has taken in
            "REVISION": revision(),
            "REGISTRY": "",  # what is there, make has fetched
        }
        for each in parts.find("compose"):
            own |= each.list_variables()
        return os.environ | self._settings.values | own

    def compose(
        self,
        *arguments: str,
        wanted: State | None = None,
        quiet: bool = False,
        progress: str = "quiet",
        timeout: float | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        environment = self._environment(wanted)
        written = [*self.compose_files]
        if self._elsewhere:
            written.append(self._elsewhere.compose_file)
            if wanted:
                environment |= self._elsewhere.list_variables()
        written += filter(None, [self._settings.compose_override])
        command = ["docker", "compose", "--progress", progress, "--project-name", self.project]
        command += [word for file in written for word in ("--file", file)]
        command += arguments
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            capture_output=quiet,
            timeout=timeout,
            input=stdin,
        )


def name_released(registry: str, service: str) -> str:
    from bundle_client import __version__  # not in the images, where networks are taken in

    return f"{registry.rstrip('/')}/triton-bundle-{service}:{__version__}"


# What images are built from.
SOURCES = (
    "docker",
    "requirements",
    "serving",
    ":(glob)kinds/*/serving/**",
    ":(glob)extensions/*/serving/**",
    "client",
    "scripts/base",
)


@cache
def revision() -> str:
    """The last commit that changed an image, so that other commits restart nothing; empty if this
    checkout has no history, or changes that are in no commit."""
    git = ["git", "-C", str(ROOT)]
    try:
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", *SOURCES], capture_output=True, text=True
        )
        last = subprocess.run(
            [*git, "log", "-1", "--format=%H", "--", *SOURCES], capture_output=True, text=True
        )
    except OSError:
        return ""
    return "" if changed.returncode or changed.stdout else last.stdout.strip()


def _read_loaded() -> dict[str, str]:
    try:
        loaded: dict[str, str] = json.loads(LOADED.read_text())
        return loaded
    except (OSError, ValueError):
        return {}


def _give(folder: Path) -> None:
    """Lets the steps, which never run as root, write to a folder that root created."""
    folder.mkdir(exist_ok=True)
    if os.getuid() == 0:
        checkout = ROOT.stat()
        owner = (checkout.st_uid, checkout.st_gid) if checkout.st_uid else (admin_key.NOBODY,) * 2
        (folder / "cache").mkdir(exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, *owner)
        for secret in (admin_key.PATH, exposure.FOLDER / PRIVATE_KEY):
            if secret.exists():
                os.chown(secret, owner[0], admin_key.NOBODY)


def _folder(container: Container) -> str:
    """The folder that a container was started from."""
    return str(container.labels[FOLDER])


def _remove_containers(containers: Iterable[Container]) -> None:
    """Stops each first, within its service's grace period; the relay ends by itself after its
    server."""
    found = list(containers)
    with ThreadPoolExecutor(max_workers=max(1, len(found))) as together:
        for _ in together.map(_stop_and_remove, found):
            pass


def _find_serving(servers: Iterable[Container]) -> str:
    """The name of the one that has the ports, as each of them sees it."""
    for server in servers:
        code, said = _execute(server, "readlink", f"{RELAY_FOLDER}/{relayed.SERVING}")
        if code == 0 and said:
            return said.strip()
    return "nobody"


def _execute(container: Container, *command: str) -> tuple[int, str]:
    """A program in it: how it ends, and what it says."""
    try:
        ran = container.exec_run([*command])
    except APIError as fault:  # it does not run
        return 1, str(fault)
    return int(ran.exit_code or 0), cast(bytes, ran.output).decode(errors="replace")


def _stop_and_remove(container: Container) -> None:
    with suppress(NotFound):
        container.stop()
    _remove(container)


def _remove(container: Container) -> None:
    try:
        container.remove(force=True)
    except APIError as fault:
        if fault.status_code not in (404, 409):  # gone already, or being removed
            raise
        with suppress(NotFound):
            container.wait(condition="removed", timeout=30)


def _fetch_torch() -> None:
    """Downloads PyTorch's CPU builds for the image with the host's pip: its index, or its folder of
    wheels, may not be reachable inside a build."""
    pins = read_pins("torch", "torchvision")
    if any(WHEELS.glob(f"torch-{pins['torch']}*.whl")):
        return
    for other in WHEELS.glob("torch*.whl"):  # of an earlier bundle
        other.unlink()
    platforms = [f"manylinux_2_{minor}_{platform.machine()}" for minor in (28, 27, 17)]
    command = [str(PYTHON), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(WHEELS)]
    command += ["--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"]
    command += [word for each in platforms for word in ("--platform", each)]
    command += bootstrap.torch_index()
    command += [f"{name}=={version}" for name, version in pins.items()]
    with console.waiting("fetching PyTorch for the export image (200 MB)"):
        fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        raise UserError(
            f"PyTorch cannot be fetched: {last_line(fetched.stderr)}",
            "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy)",
        )


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
