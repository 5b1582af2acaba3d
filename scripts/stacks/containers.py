"""Flavour cpu: the steps and the server as containers. Compose runs the stack; the Docker SDK
answers questions about the engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container

import docker
from bundle_serving import keeper_notes
from bundle_serving.health import reason_not_to_trust
from bundle_serving.start_server import PIPELINE
from scripts import bootstrap
from scripts.base import console, lock, ports
from scripts.base.errors import AlreadyTold, UserError
from scripts.base.paths import PYTHON, ROOT
from scripts.base.ports import free_ports
from scripts.repository.model_folders import Share
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, state, temporary
from scripts.stacks.state import State
from scripts.steps.manifest import pinned
from scripts.storage import on_demand
from scripts.storage.from_containers import seen_from_containers
from scripts.storage.location import wished

WHEELS = ROOT / "docker" / "export" / "wheels"
OLDEST_COMPOSE = (2, 24)
INSTALL = "https://docs.docker.com/engine/install"

# Who the containers run as where make is root's. 1000 would be the first user of many a machine,
# who could then read the operator's key.
NOBODYS = 65532

# Each Python process and Triton share a region that grows with the tensors that pass through it.
# The largest picture that is taken as an array, of 50 megapixels, has 600 MB.
SHM_BASE_MB, SHM_INSTANCE_MB = 768, 64


def why_not_docker() -> str | None:
    """None when containers can be built and run here; else what is missing, and its remedy."""
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
    compose_files: tuple[str, ...] = ("compose.yaml",)
    images: tuple[str, ...] = ("export", "server")
    image_suffix = ""
    run_dir = "/run/triton"  # in the container: where a server may put its programs together
    # The log goes with the container, and that goes when it does not start.
    log_hint = "see it whole: docker compose up server"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _engine(self) -> docker.DockerClient:
        return docker.from_env(timeout=60)

    def _image(self, service: str) -> str:
        return f"{self.project}-{service}{self.image_suffix}"

    @property
    def project(self) -> str:
        name = os.environ.get("COMPOSE_PROJECT_NAME") or ROOT.name
        return re.sub(r"[^a-z0-9_-]", "", name.lower()).lstrip("_-") or "triton-bundle"

    def prepare(self) -> None:
        admin_key.ensure(int(self._run_as.partition(":")[0]))
        lock.keepers_hands()
        self.build("server")

    def run_step(self, step: str, *arguments: str | Path) -> None:
        """A path inside the project is there in the container; another one is mounted."""
        self.prepare_step(step)
        command = ["run", "--rm", "--no-deps", "-T"]
        words: list[str] = []
        for number, argument in enumerate(arguments):
            if not isinstance(argument, Path):
                words.append(argument)
            elif argument.is_relative_to(ROOT / "build"):
                words.append(str(Path("/bundle") / argument.relative_to(ROOT)))
            else:
                self._require_readable(argument)
                inside = f"/inputs/{number}/{argument.name}"
                command += ["--volume", f"{argument}:{inside}:ro"]
                words.append(inside)
        command += [step, "python3", "-m", f"scripts.steps.{step}", *words]
        _give(ROOT / "build", self._run_as)
        self.remove(step)  # of a make that was killed: it would write where this one does
        try:
            code = self.compose(*command).returncode
        finally:
            self.remove(step)  # Ctrl-C ends Compose, and not always the container
        if code:
            raise AlreadyTold(code)

    def prepare_step(self, step: str) -> None:
        if step in ("export", "adopt", "quantise"):
            _fetch_torch()
            self.build("export")

    def disk(self) -> Path | None:
        """Where the engine keeps its images, if that can be seen from here."""
        root = Path(self._engine.info()["DockerRootDir"])
        return root if root.is_dir() else None

    def has_images(self) -> bool:
        return all(self._engine.images.list(self._image(service)) for service in self.images)

    def version(self) -> str:
        """Of the program that serves, for the fingerprint."""
        name = self._image("server")
        try:
            return str(self._engine.images.get(name).id)
        except (DockerException, OSError) as fault:
            raise UserError(f"the image {name} is not to be had ({fault})", "make up") from None

    def start(self, wanted: State) -> None:
        ports.require_free(self._settings["BIND"], self._settings.ports())
        on_demand.hand_over_keys(self._settings)
        wanted.save()
        started = self.compose("up", "--detach", "--no-build", "server", wanted=wanted, quiet=True)
        if started.returncode:
            raise UserError(
                f"Docker cannot start the server: {last_line(started.stderr)}",
                "make doctor tells what is wrong",
            )

    @contextmanager
    def temporary(self, repository: Path, log: Path) -> Iterator[tuple[str, str]]:
        """A server for as long as a block lasts, and where it is asked over HTTP and gRPC."""
        http, grpc = free_ports(2)
        container = self._engine.containers.run(
            self._image("server"),
            detach=True,
            init=True,
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            user=self._run_as,
            environment={"BIND": "127.0.0.1"},
            tmpfs={"/run/triton": "exec,mode=1777", "/tmp": ""},
            volumes={
                str(repository): {"bind": "/models", "mode": "ro"},
                str(admin_key.PATH): {"bind": "/run/secrets/admin_key", "mode": "ro"},
            },
            ports={"8000/tcp": ("127.0.0.1", http), "8001/tcp": ("127.0.0.1", grpc)},
            shm_size=self._shm_size,
            mem_limit=self._settings["MEMORY"],
        )

        def alive() -> bool:
            container.reload()
            return container.status in ("created", "running")

        address = f"127.0.0.1:{http}"
        try:
            temporary.until_it_answers(
                "the server",
                lambda: reason_not_to_trust(f"http://{address}", PIPELINE),
                alive,
                lambda: container.logs().decode(errors="replace"),
            )
            yield address, f"127.0.0.1:{grpc}"
        finally:
            log.write_bytes(container.logs())
            container.remove(force=True)

    def memory(self) -> tuple[int, int] | None:
        """Bytes that the server takes, and may take, where Docker can tell."""
        container = self._container("server")
        seen: Any = container.stats(stream=False) if container else {}
        memory = seen.get("memory_stats", {})
        if not {"limit", "usage"} <= memory.keys():
            return None
        cached = memory.get("stats", {}).get("inactive_file", 0)
        return int(memory["usage"] - cached), int(memory["limit"])

    def room(self) -> int | None:
        """Bytes of memory that are left to the server."""
        memory = self.memory()
        return memory[1] - memory[0] if memory else None

    def kept(self) -> dict[str, Any]:
        """What the server's keeper has noted; the gpu flavour has none."""
        container = self._container("server")
        if self.flavour == "gpu" or not container or container.status != "running":
            return {}
        ran = container.exec_run(["cat", f"{self.run_dir}/{keeper_notes.STATE}"])
        noted: dict[str, Any] = json.loads(cast(bytes, ran.output)) if ran.exit_code == 0 else {}
        return noted

    def alive(self, service: str = "server") -> bool:
        container = self._container(service)
        # "restarting" is what Docker says between two failures of a server that cannot start.
        return bool(container and container.status in ("created", "running"))

    def stop(self) -> bool:
        """Removes the server's container and the project's network."""
        found = self._container("server") is not None
        stopped = self.compose("down", "--remove-orphans", quiet=True)
        if stopped.returncode:
            raise UserError(
                f"Docker cannot stop the server: {last_line(stopped.stderr)}",
                "make doctor tells what is wrong",
            )
        state.forget()
        return found

    def log(self, service: str = "server") -> str:
        container = self._container(service)
        return container.logs().decode(errors="replace") if container else ""

    def logs(self, follow: bool) -> int:
        options = ["--follow"] if follow else []
        return self.compose("logs", "--tail", "200", *options, "server").returncode

    def remove_service(self, service: str) -> bool:
        """Stops one that stands beside the server; whether it was there."""
        found = self._container(service) is not None
        self.compose("rm", "--stop", "--force", service, quiet=True)
        return found

    def remove_images(self) -> None:
        """Our own; what they were built from may be others' too."""
        for service in (*self.images, "s3"):
            with suppress(ImageNotFound):
                self._engine.images.remove(self._image(service), force=True)

    def _containers(self, service: str) -> list[Container]:
        labels: list[str] = [
            f"com.docker.compose.project={self.project}",
            f"com.docker.compose.service={service}",
        ]
        try:
            return self._engine.containers.list(all=True, filters={"label": labels})
        except (DockerException, OSError) as fault:
            raise UserError(f"Docker does not answer ({fault})", "make doctor tells why") from None

    def _container(self, service: str) -> Container | None:
        return next(iter(self._containers(service)), None)

    def remove(self, service: str, name: str | None = None) -> None:
        for container in self._containers(service):
            if name and container.name != name:
                continue
            try:
                container.remove(force=True)
            except APIError as fault:
                if fault.status_code not in (404, 409):  # gone, or just about to be
                    raise
                with suppress(NotFound):
                    container.wait(condition="removed", timeout=30)

    def build(self, service: str, announced: bool = True) -> None:
        if announced:
            console.note(f"image {self._image(service)}: building what is not built yet …")
        watched = announced and console.out.is_terminal
        built = self.compose("build", service, quiet=not watched, progress="auto")
        if built.returncode:
            why = "see above" if watched else last_line(built.stderr)
            raise UserError(
                f"the image of {service} cannot be built: {why}",
                "try again (behind a company's proxy with CA_BUNDLE)",
            )

    @property
    def _run_as(self) -> str:
        """Steps write into build/, and the server reads its key there, as the owner; never as
        root."""
        user, group = (os.getuid(), os.getgid()) if os.getuid() else (NOBODYS, NOBODYS)
        return f"{user}:{group}"

    @property
    def _shm_size(self) -> str:
        instances = sum(
            Share.of(self._settings.cores, self._settings.number(name)).instances
            for name in ("PREPROCESS_INSTANCES", "NETWORK_INSTANCES")
        )
        return f"{SHM_BASE_MB + SHM_INSTANCE_MB * instances}m"

    def _require_readable(self, path: Path) -> None:
        """By the steps' user, who is another one where make is root's."""
        wanted = 0o5 if path.is_dir() else 0o4
        if os.getuid() == 0 and path.exists() and path.stat().st_mode & wanted != wanted:
            raise UserError(
                f"{path} can be read by root alone, and the containers are not root's",
                f"chmod -R a+rX {path}",
            )

    def _environment(self, wanted: State | None) -> dict[str, str]:
        """The variables that the Compose files are filled in with."""
        own = {
            "RUN_AS": self._run_as,
            "SHM_SIZE": self._shm_size,
            "FINGERPRINT": wanted.fingerprint if wanted else "",
        }
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
        files = [*self.compose_files]
        if location := wished(self._settings):
            files.append("compose.s3.yaml")
            if wanted:
                environment["S3_URL"] = str(seen_from_containers(location, self._settings))
        files += filter(None, [self._settings["COMPOSE_OVERRIDE"]])
        command = ["docker", "compose", "--progress", progress, "--project-name", self.project]
        command += [word for file in files for word in ("--file", file)]
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


def _give(folder: Path, owner: str) -> None:
    """Lets the steps' user write where root works."""
    folder.mkdir(exist_ok=True)
    if os.getuid() == 0:
        user, group = map(int, owner.split(":"))
        (folder / "cache").mkdir(exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, group)


def _fetch_torch() -> None:
    """PyTorch's CPU builds for the image, by the host's own pip and its settings: an index that
    the host reaches, or a folder of wheels, is not always there inside a build."""
    if any(WHEELS.glob("torch-*.whl")):
        return
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)]
    command = [str(PYTHON), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(WHEELS)]
    command += ["--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"]
    command += [word for platform in platforms for word in ("--platform", platform)]
    command += bootstrap.torch_index()
    command += [f"{name}=={version}" for name, version in pinned("torch", "torchvision").items()]
    with console.waiting("fetching PyTorch for the export image (200 MB)"):
        fetched = subprocess.run(command, capture_output=True, text=True)
    if fetched.returncode:
        raise UserError(
            f"PyTorch cannot be fetched: {last_line(fetched.stderr)}",
            "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy)",
        )


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
