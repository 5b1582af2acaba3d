"""Flavour cpu: the steps and the server as containers."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import psutil
from docker.errors import APIError
from docker.models.containers import Container

from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes, main_pipeline
from bundle_serving.process.exposure import PRIVATE_KEY
from scripts.artefacts.step import Place, Step
from scripts.base import console, files, lock, ports
from scripts.base.errors import UserError
from scripts.base.paths import IN_CONTAINERS, ROOT
from scripts.base.reader import READER, may_read
from scripts.recipes import pipelines
from scripts.recipes.layout import CPU
from scripts.repository import live
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, certificates, exposure, handover, state, temporary
from scripts.stacks.compose import (
    ONE_OFF,
    PROJECT,
    RELAY_FOLDER,
    SERVED,
    SERVICE,
    Compose,
    list_staying,
)
from scripts.stacks.docker_engine import (
    execute,
    last_line,
    open_log,
    remove,
    require_done,
    stop_all,
    stop_and_remove,
)
from scripts.stacks.images import Images, fetch_torch
from scripts.stacks.stack import Many, why_not_ready
from scripts.stacks.state import State

# The server as it is started beside another one, until it takes over.
BESIDE = SERVED.with_name("beside.yaml")

# What two containers of one service cannot both have.
OF_ONE = ("container_name", "hostname", "ports", "network_mode")
# Where a server that is only tried has its repository: at the usual place, Compose goes on mounting
# the live one.
TRIED = "/tried"
# What compose.yaml mounts into steps.
MOUNTED = [
    *("docker", "extensions", "kinds", "model_repository", "requirements", "scripts", "serving"),
]
# On a busy machine Triton may end at its start, where a process of a model waits too long.
MOST_STARTS = 3


class DockerStack:
    flavour = "cpu"
    engine = CPU
    many: Many | None = None
    compose_files: tuple[str, ...] = ("compose.yaml",)
    other_layers = 1  # of the server's image, the last: they take networks in, and do not serve
    image_suffix = ""
    # The service whose container runs a step.
    services: ClassVar[Mapping[Place, str]] = {
        Place.EXPORT: "export",
        Place.SERVER: "engine",
        Place.ADOPT: "engine",
    }
    # In the container's memory: writable, and programs may run from it.
    run_dir = "/run/triton"
    # A container that does not start is removed, and its log with it.
    log_hint = "see the whole log: make logs"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.compose = Compose(settings, self.compose_files)
        self.images = Images(settings, self.compose, self.image_suffix)

    @property
    def project(self) -> str:
        return self.compose.project

    def _hand_over_keys(self) -> None:
        if self.compose.elsewhere:
            self.compose.elsewhere.hand_over_keys()

    def prepare(self) -> None:
        self.compose.require_own()
        # Left by a killed make: a private server takes memory, and a step goes on writing.
        for left in self.compose.list_containers(f"{ONE_OFF}=True"):
            if left.labels[SERVICE] in ("server", *self.services.values()):
                remove(left)
        if self.compose.elsewhere:  # refused before anything is built
            self.compose.elsewhere.require_reachable_from_containers()
        let_steps_read(ROOT)
        self.images.build("server")
        certificates.place(self._settings)
        needs_certificate = exposure.exposure_of(self._settings).certificate is not None
        readable = all(map(_is_for_containers, (admin_key.PATH, lock.HANDS_OFF)))
        if needs_certificate or not (readable and live.REPOSITORY.is_dir()):
            self.compose.run_once("init", options=certificates.list_options(self._settings))
        admin_key.ensure()
        lock.hands_off_file()

    def run_step(self, step: Step, *arguments: str | Path) -> None:
        """Paths inside the project exist in the container; others are mounted, and links, which may
        lead out of it."""
        self.prepare_place(step.place)
        options = [f"--env=COLUMNS={console.out.width}"] if console.out.is_terminal else []
        options += ["--env=JSON=1"] if console.Form.is_json else []
        words: list[str] = []
        for number, argument in enumerate(arguments):
            if not isinstance(argument, Path):
                words.append(argument)
            elif argument.is_relative_to(ROOT / "build") and not argument.is_symlink():
                words.append(str(Path(IN_CONTAINERS) / argument.relative_to(ROOT)))
            else:
                self._require_readable(argument)
                inside = f"/inputs/{number}/{argument.name}"
                options += ["--volume", f"{argument}:{inside}:ro"]
                words.append(inside)
        _give(ROOT / "build")
        command = ("as-owner", "python3", "-m", step.module, *words)
        self.compose.run_once(self.services[step.place], *command, options=options)

    def prepare_place(self, place: Place) -> None:
        if place is Place.EXPORT:
            fetch_torch()
            self.images.build("export")

    def version(self) -> str:
        return self.images.hash_server(self.other_layers)

    def start(self, wanted: State) -> None:
        # What make started has been stopped; Compose alone may have started some, of any project.
        self.compose.take_down(
            each
            for each in self.compose.list_started_here()
            if each.labels[SERVICE] not in list_staying()
        )
        ports.require_free(self._settings.bind, self._settings.ports, by_engine=True)
        self._hand_over_keys()
        wanted.save()
        files.write_private(SERVED, json.dumps(self._configure(wanted), indent=2) + "\n")
        dotenv_file.write_for_compose(self.project, SERVED)
        self._compose_up(SERVED)

    def _compose_up(self, file: Path, *options: str) -> None:
        command = ["docker", "compose", "--project-name", self.project, "--file", str(file)]
        command += ["--project-directory", str(ROOT), "up", "--detach", "--no-build", *options]
        started = subprocess.run([*command, "server"], cwd=ROOT, capture_output=True, text=True)
        require_done(started, "Docker cannot start the server")

    def why_alone(self, known: State) -> str | None:
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
        files.write_private(BESIDE, json.dumps(config, indent=2) + "\n")
        try:
            self._compose_up(BESIDE, "--no-recreate", "--scale", "server=2")
        except BaseException:
            self.withdraw(wanted)
            raise
        return wanted

    def why_unready(self, new: State) -> str | None:
        """Of the server beside another one, to which the ports do not lead."""
        container = next(iter(self.compose.find_beside()), None)
        if container is None or container.attrs["RestartCount"] >= MOST_STARTS:
            said = container.logs().decode(errors="replace") if container else ""
            raise handover.refuse_new(said)
        if reason := why_not_ready(self._read_notes(container)):
            return reason
        _, coming = execute(container, "cat", f"{self.run_dir}/{keeper_notes.COMING}")
        if coming != "[]":
            return f"it loads {coming}"
        code, said = execute(container, *container.attrs["Config"]["Healthcheck"]["Test"][1:])
        return last_line(said) if code else None

    def take_over(self, known: State, new: State) -> None:
        old = self.compose.find("server")
        beside = next(iter(self.compose.find_beside()), None)
        relayed = ("python3", "-m", "bundle_serving.process.relayed", RELAY_FOLDER)
        try:
            code, said = execute(beside, *relayed) if beside else (1, "it is gone")
            if code:
                cause = f"the new server does not get the ports ({last_line(said)})"
                raise UserError(cause, "make up tries it again")
            new.save()
        except BaseException:
            if old:  # it may have got them all the same, and who has them is not withdrawn
                execute(old, *relayed)
            raise
        BESIDE.replace(SERVED)
        if old:
            execute(old, "python3", "-m", "bundle_serving.drain", self.run_dir)
            stop_and_remove(old)

    def withdraw(self, new: State) -> None:
        for container in self.compose.find_beside():
            _remove_and_keep_log(container, state.REFUSED)
        BESIDE.unlink(missing_ok=True)

    def end_strays(self, known: State) -> None:
        stop_all(self.compose.find_beside())

    def rehearse(self) -> None:
        needed, free = self.memory(), psutil.virtual_memory().available
        if self.flavour != "cpu" or self.compose.elsewhere or (needed and needed[0] > free):
            return
        console.note("trying the new server, on ports of its own")
        try:
            with self.temporary(live.REPOSITORY, state.REFUSED, pipelines.main().ensemble):
                pass
        except UserError as fault:
            raise UserError(fault.cause, handover.SERVES_ON) from None
        state.REFUSED.unlink(missing_ok=True)

    def _configure(self, wanted: State) -> dict[str, Any]:
        """The server's configuration as started now, and the services beside it, without the build
        steps."""
        configured = self.compose.read("--profile", "*", wanted=wanted)
        kept = ("server", "ports", *list_staying())
        services = {name: configured["services"][name] for name in kept}
        services["server"]["depends_on"] = {"ports": {"condition": "service_started"}}
        # As long as it runs it is the same one, whatever image is built.
        services["ports"]["image"] = str(self.images.find_server().id)
        return configured | {"services": services}

    @contextmanager
    def temporary(self, repository: Path, log: Path, pipeline: str) -> Iterator[tuple[str, str]]:
        http, grpc = ports.free_ports(2)
        name = f"{self.project}-temporary-{http}"
        options = ["--name", name, f"--volume={repository}:{TRIED}:ro"]
        # What it answers is not to count as what the live server does.
        options += [f"--env=REPOSITORY={TRIED}", f"--env=STATE_FOLDER={self.run_dir}"]
        options += ["--env=BIND=127.0.0.1", "--env=TLS_CERT=", "--env=RELAY_FOLDER="]
        options += [f"--env={main_pipeline.VARIABLE}={pipeline}"]
        options += [f"--publish=127.0.0.1:{http}:8000", f"--publish=127.0.0.1:{grpc}:8001"]
        address = f"127.0.0.1:{http}"
        try:
            ran = self.compose.run("run", "--detach", "--no-deps", *options, "server", quiet=True)
            require_done(ran, "Docker cannot start a private server")
            container = self.compose.engine.containers.get(name)

            def alive() -> bool:
                container.reload()
                return container.status in ("created", "running")

            temporary.until_it_answers(
                "the server",
                lambda: reason_not_to_trust(address, pipeline),
                alive,
                lambda: container.logs().decode(errors="replace"),
            )
            yield address, f"127.0.0.1:{grpc}"
        finally:  # Ctrl-C ends Compose, but not always the container
            for left in self.compose.list_containers(f"{SERVICE}=server"):
                if left.name == name:
                    _remove_and_keep_log(left, log)
            self.compose.remove_networks(self.project)

    def memory(self) -> tuple[int, int] | None:
        """Bytes that the server uses, and its limit, if Docker knows them."""
        container = self.compose.find("server")
        seen: Any = container.stats(stream=False) if container else {}
        memory = seen.get("memory_stats", {})
        if not {"limit", "usage"} <= memory.keys():
            return None
        cached = memory.get("stats", {}).get("inactive_file", 0)
        return int(memory["usage"] - cached), int(memory["limit"])

    def ask_in_server(self, *command: str) -> str:
        """What a program says in its container."""
        container = self.compose.find("server")
        return execute(container, *command)[1] if container else ""

    def room(self) -> int | None:
        memory = self.memory()
        return memory[1] - memory[0] if memory else None

    def keeper_state(self) -> dict[str, Any]:
        return self._read_notes(self.compose.find("server"))

    def _read_notes(self, container: Container | None) -> dict[str, Any]:
        if not container or container.status != "running":
            return {}
        # Of a program that ends at once, a busy engine may give the exit code and no output.
        code, said = execute(container, "cat", f"{self.run_dir}/{keeper_notes.STATE}")
        return keeper_notes.parse_notes(said.encode()) if code == 0 else {}

    def alive(self, service: str = "server") -> bool:
        container = self.compose.find(service)
        # Docker's status is "restarting" between two failures of a server that cannot start.
        return bool(container and container.status in ("created", "running"))

    def there(self) -> bool:
        return any(self._is_to_stop(each) for each in self.compose.list_started_here())

    def find_held_ports(self) -> set[int]:
        """By what was started from this checkout, also by Compose alone."""
        published = (
            ports for each in self.compose.list_started_here() for ports in each.ports.values()
        )
        return {int(port["HostPort"]) for ports in published for port in ports or ()}

    def stop(self) -> bool:
        """Removes what was started from this checkout under any project name, and its networks;
        returns whether a server of this flavour was among it."""
        going = [each for each in self.compose.list_started_here() if self._is_to_stop(each)]
        self.compose.take_down(going)
        state.forget()
        if SERVED.exists():
            SERVED.unlink()
            dotenv_file.write_for_compose(self.project)
        return any(each.labels[SERVICE] == "server" for each in going)

    def _is_to_stop(self, container: Container) -> bool:
        image = str(container.attrs["Config"]["Image"])
        another_flavours = not re.search(rf"-server{self.image_suffix}(:[\d.]+)?$", image)
        service = container.labels[SERVICE]
        return service not in list_staying() and not (service == "server" and another_flavours)

    def log(self, service: str = "server") -> str:
        container = self.compose.find(service)
        return container.logs().decode(errors="replace") if container else ""

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        container = self.compose.find("server")
        if container is None:
            raise UserError("there is no container of the server", "start one: make up")
        return open_log("docker", "logs", *(["--follow"] if follow else []), str(container.id))

    def let_containers_read(self, path: Path) -> None:
        """A secret in build/, through the group of their user."""
        inside = str(Path(IN_CONTAINERS) / path.relative_to(ROOT))
        script = f'chgrp {READER} "$0" && chmod 640 "$0"'
        self.compose.run_once("init", "sh", "-c", script, inside)

    def remove_all(self) -> None:
        """Also what `make down` keeps, and the images. Docker keeps what another checkout of the
        same name uses."""
        self.compose.take_down(self.compose.list_started_here())
        for volume in self.compose.engine.volumes.list(
            filters={"label": f"{PROJECT}={self.project}"}
        ):
            with suppress(APIError):
                volume.remove()
        self.images.remove_all()

    def _require_readable(self, path: Path) -> None:
        """By the steps' user, who differs from root if root runs make."""
        wanted = 0o5 if path.is_dir() else 0o4
        if os.getuid() == 0 and path.exists() and path.stat().st_mode & wanted != wanted:
            raise UserError(
                f"{path} is readable by root only, and the containers do not run as root",
                f"chmod -R a+rX {path}",
            )


def let_steps_read(checkout: Path) -> None:
    """Whatever the umask of the clone: a step begins as a root that may read no other user's, and
    ends as nobody in a clone of root's."""
    with suppress(PermissionError):  # a colleague's, who has seen to it
        for name in MOUNTED:
            files.let_all_read(checkout / name)


def _is_for_containers(path: Path) -> bool:
    """Their user reads it through its group, in a folder that all may enter."""
    if not path.exists():
        return False
    for_group = may_read(path) and path.stat().st_mode & 0o040
    return bool(for_group and path.parent.stat().st_mode & 0o001)


def _remove_and_keep_log(container: Container, log: Path) -> None:
    """On a full disk, without its log."""
    try:
        files.write_private(log, container.logs().decode(errors="replace"))
    finally:
        remove(container)


def _give(folder: Path) -> None:
    """Lets the steps, which never run as root, write to a folder that root created."""
    folder.mkdir(exist_ok=True)
    if os.getuid() == 0:
        checkout = ROOT.stat()
        owner = (checkout.st_uid, checkout.st_gid) if checkout.st_uid else (READER,) * 2
        (folder / "cache").mkdir(exist_ok=True)
        # Links in it themselves: steps write there, and what they lead to is not to be given away.
        top = folder.resolve()  # which may be another disk's
        for path in (top, *top.rglob("*")):
            with suppress(FileNotFoundError):  # gone meanwhile
                os.lchown(path, *owner)
        for secret in (admin_key.PATH, exposure.FOLDER / PRIVATE_KEY):
            if secret.exists():
                os.lchown(secret, owner[0], READER)
