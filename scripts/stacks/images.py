"""The images that containers are made of: built, fetched from a registry or taken from a pack, and
handed on. A registry is looked at before anything is built for it."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from docker.auth import load_config
from docker.errors import APIError, DockerException, InvalidRepository, NotFound

import docker
from scripts import bootstrap
from scripts.artefacts.manifest import read_pins
from scripts.base import console, files
from scripts.base.errors import AlreadyReported, UserError
from scripts.base.paths import PYTHON, ROOT
from scripts.base.text import printable
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks.compose import PROJECT, Compose, list_staying
from scripts.stacks.docker_engine import last_line, require_done

WHEELS = ROOT / "docker" / "export" / "wheels"

# Those that a pack brought along, by service.
LOADED = ROOT / "build" / "images.json"

# Those of a release. Others are built from NVIDIA's, or beside the server.
RELEASED = ("export", "layout", "server")

# On those that make builds: which checkout's they are, under any project name.
BUILT_BY = "triton-bundle.checkout"

# What registries say to those whom they do not know.
UNKNOWN = ("unauthorized", "denied", "no basic auth credentials", "authentication required")
SECONDS = 60


class Images:
    """Of one flavour, whose services' names end in `suffix`."""

    def __init__(self, settings: Settings, compose: Compose, suffix: str) -> None:
        self._settings, self._compose, self._suffix = settings, compose, suffix
        self._built: set[str] = set()  # by this command

    def name(self, service: str) -> str:
        return f"{self._compose.project}-{service}{self._suffix}"

    def build(self, service: str, announced: bool = True) -> None:
        if service in self._built or self._is_loaded(service) or self._is_released(service):
            return
        if announced:
            console.note(f"image {self.name(service)}: building if needed …")
        watched = announced and console.out.is_terminal
        built = self._compose.run("build", service, quiet=not watched, progress="auto")
        if built.returncode:
            self._compose.read()  # says it if COMPOSE_OVERRIDE is wrong
            cause = f"the image of {service} cannot be built"
            remedy = "run make doctor, or try again (behind a company proxy: docs/operating.md)"
            if watched:
                raise UserError(f"{cause}: see above", remedy)
            require_done(built, cause, remedy)
        self._built.add(service)

    def _is_released(self, service: str) -> bool:
        """Whether the image is the one of REGISTRY, which is fetched where it is not here."""
        if not self._settings.registry or service not in RELEASED or self._suffix:
            return False
        released = name_released(self._settings.registry, service)
        if not self._compose.engine.images.list(released):
            console.note(f"image {released}: fetching …")
            fetched = subprocess.run(["docker", "pull", released], capture_output=True, text=True)
            if fetched.returncode:
                console.note(f"it cannot be had ({last_line(fetched.stderr)})")
                return False
        self._compose.engine.images.get(released).tag(self.name(service))
        return True

    def _is_loaded(self, service: str) -> bool:
        """Whether the image is the one that a pack brought along."""
        wanted = files.read_json(LOADED).get(service)
        found = self._compose.engine.images.list(self.name(service)) if wanted else []
        return any(each.id == wanted for each in found)

    def has(self, *services: str) -> bool:
        return all(self._compose.engine.images.list(self.name(service)) for service in services)

    def find_server(self) -> Any:
        name = self.name("server")
        try:
            return self._compose.engine.images.get(name)
        except (DockerException, OSError) as fault:
            raise UserError(f"the image {name} is not available ({fault})", "run make up") from None

    def hash_server(self, other_layers: int) -> str:
        """Of its program: without its last layers, so many of which take networks in."""
        image = self.find_server().attrs
        layers, config = image["RootFS"]["Layers"], image["Config"]
        what = [layers[: len(layers) - other_layers], config["Env"], config["Cmd"]]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()

    def find_disk(self) -> Path | None:
        """Where the engine keeps its images, if that is visible from here."""
        root = Path(self._compose.engine.info()["DockerRootDir"])
        return root if root.is_dir() else None

    def list_replaced(self) -> list[tuple[list[str], int, datetime]]:
        """Those of this project whose name a newer build took, also what was pushed of them, or
        named for a swarm, and those of REGISTRY that are another release's; none that a container
        has, as that of the ports may for long: names or id, bytes, when it was built."""
        engine, registry = self._compose.engine, self._settings.registry
        used = {each.attrs["ImageID"] for each in engine.containers.list(all=True, sparse=True)}
        found = engine.images.list(filters={"label": f"{PROJECT}={self._compose.project}"})
        for service in RELEASED if registry else ():
            pulled = engine.images.list(name_released(registry, service).rpartition(":")[0])
            found += [each for each in pulled if each.tags]  # else it was named by its digest
        return [
            (list_names(each), each.attrs["Size"], datetime.fromisoformat(each.attrs["Created"]))
            for each in {each.id: each for each in found}.values()
            if each.id not in used and all(map(self._is_replaced, each.tags))
        ]

    def _is_replaced(self, name: str) -> bool:
        """Of one that has no other name."""
        from bundle_client import __version__

        repository, _, tag = name.rpartition(":")
        if "/triton-bundle-" in repository:
            return tag != __version__
        return repository == self.name("server") and tag != "latest"

    def sbom(self) -> str | None:
        """What the server's image carries, as CycloneDX; None if it is not built here."""
        if not self.has("server"):
            return None
        # Attached: the engine's log, as the SDK reads it, was once cut off on a busy machine.
        command = ["docker", "run", "--rm", "--network", "none", self.name("server"), "cat"]
        command.append("/usr/share/triton-bundle/sbom.json")
        asked = subprocess.run(command, capture_output=True, text=True)
        require_done(asked, f"the image {self.name('server')} does not say what it carries")
        return asked.stdout

    def push(self, service: str, name: str) -> str:
        """Pushes an image as this name, with the keys of `docker login`; returns the name with its
        digest."""
        self._compose.engine.images.get(self.name(service)).tag(name)
        pushed = subprocess.run(["docker", "push", name], capture_output=True, text=True)
        remedy = f"log in first (docker login {name.partition('/')[0]}), and check PUSH"
        require_done(pushed, f"{name} cannot be pushed", remedy)
        exact = f"{name.rpartition(':')[0]}@{find_digest(name)}"
        if shutil.which("cosign"):
            signed = subprocess.run(["cosign", "sign", "--yes", exact])
            if signed.returncode:
                raise AlreadyReported(signed.returncode)
        return exact

    def save(self, service: str, file: Path) -> None:
        """Writes an image to a file, under a name that is the same in every checkout."""
        name = f"triton-bundle-{service}"
        self._compose.engine.images.get(self.name(service)).tag(name)
        try:
            with file.open("wb") as out:
                command = ["docker", "save", name]
                saved = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True)
            require_done(saved, f"Docker cannot save the image of {service}")
        finally:
            self.remove(name)

    def load(self, service: str, file: Path) -> None:
        """Takes an image from such a file; it is then not built here."""
        name = f"triton-bundle-{service}"
        with file.open("rb") as saved:
            loaded = subprocess.run(
                ["docker", "load", "--quiet"], stdin=saved, capture_output=True, text=True
            )
        require_done(loaded, f"Docker cannot load {file.name}")
        image = self._compose.engine.images.get(name)
        image.tag(self.name(service))
        self.remove(name)
        files.write(LOADED, json.dumps(files.read_json(LOADED) | {service: image.id}) + "\n")

    def remove(self, *names: str) -> None:
        for name in names:
            with suppress(APIError):  # a container uses it, or another image is built on it
                self._compose.engine.images.remove(name)

    def remove_all(self) -> None:
        for service in list_services():
            self.remove(self.name(service))
        for image in self._compose.engine.images.list(filters={"label": f"{BUILT_BY}={ROOT}"}):
            self.remove(*list_names(image))

    def find_of_folder_name(self) -> list[str]:
        """Those from the time when the folder's name alone was the project's name."""
        if self._compose.project == dotenv_file.folder_name():
            return []
        names = [f"{dotenv_file.folder_name()}-{each}{self._suffix}" for each in list_services()]
        return [name for name in names if self._compose.engine.images.list(name)]


def list_services() -> tuple[str, ...]:
    """Whose images make builds, in one flavour or another."""
    return (*RELEASED, "sdk", *list_staying())


def name_released(registry: str, service: str) -> str:
    from bundle_client import __version__  # not in the images, where networks are taken in

    return name_image(registry, service, __version__)


def name_image(registry: str, service: str, tag: str) -> str:
    return f"{registry.rstrip('/')}/triton-bundle-{service}:{tag}"


def list_names(image: Any) -> list[str]:
    """By which it is removed; of one whose name another one took, its id."""
    return image.tags or [str(image.id)]


def find_digest(name: str) -> str:
    """Of what was pushed or pulled under this name here; empty where nothing is known of it."""
    repository = name.rpartition(":")[0]
    try:
        digests = docker.from_env(timeout=SECONDS).images.get(name).attrs["RepoDigests"]
    except (DockerException, OSError):
        return ""
    found = (str(each).partition("@") for each in digests)
    return next((digest for known, _, digest in found if known == repository), "")


def require_registry(registry: str) -> None:
    """Asked by the engine as for a push: over its network, with its certificates and proxies, and
    with the keys of `docker login`."""
    image, host = name_released(registry, "server"), registry.partition("/")[0]
    try:
        docker.from_env(timeout=SECONDS).images.get_registry_data(image)
    except NotFound:  # nothing is there yet
        return
    except (DockerException, OSError) as fault:
        said = printable(str(getattr(fault, "explanation", None) or fault))
        if isinstance(fault, InvalidRepository) or "invalid reference" in said:
            raise UserError(
                f"PUSH={registry} names no registry: {said}",
                "as in PUSH=registry.example/team, in lower case and without https://",
            ) from None
        if not any(each in said for each in UNKNOWN):
            raise UserError(
                f"no registry of images answers at {host}: {said}",
                "check PUSH, and whether this machine reaches it",
            ) from None
        # To those whom they know, some say so of what is not there yet.
        has_key = load_config().resolve_authconfig(host)
        if "denied" in said and "expired" not in said and has_key:
            return
        raise UserError(
            f"{host} does not let you in: {said}", f"docker login {host}, and check PUSH"
        ) from None


def fetch_torch() -> None:
    """Downloads PyTorch's CPU builds for the image with the host's pip: its index, or its folder of
    wheels, may not be reachable inside a build."""
    pins = read_pins("torch", "torchvision")
    if any(WHEELS.glob(f"torch-{pins['torch']}*.whl")):
        return
    for other in WHEELS.glob("torch*.whl"):  # of an earlier bundle
        other.unlink()
    platforms = [f"manylinux_2_{minor}_{platform.machine()}" for minor in (28, 27, 17)]
    command = [str(PYTHON), "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"]
    command += [word for each in platforms for word in ("--platform", each)]
    indexes = {"PIP_EXTRA_INDEX_URL": bootstrap.name_indexes(bootstrap.pip_settings())}
    command += [f"{name}=={version}" for name, version in pins.items()]
    for leftover in WHEELS.glob(".*.tmp"):  # left by a killed make
        shutil.rmtree(leftover, ignore_errors=True)
    with TemporaryDirectory(dir=WHEELS, prefix=".", suffix=".tmp") as draft:
        with console.waiting("fetching PyTorch for the export image (200 MB)"):
            command += ["--dest", draft]
            environment = os.environ | indexes
            fetched = subprocess.run(command, env=environment, capture_output=True, text=True)
        remedy = "check the network and pip's own settings (PIP_INDEX_URL, PIP_CERT, a proxy)"
        require_done(fetched, "PyTorch cannot be fetched", remedy)
        # torchvision first: where torch is, nothing is fetched again.
        for wheel in sorted(Path(draft).iterdir(), reverse=True):
            wheel.replace(WHEELS / wheel.name)
