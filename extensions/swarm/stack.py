"""Flavour swarm: the server of flavour cpu, many times, on the nodes of a Docker Swarm; a balancer
on each node. The steps run on this machine, which must be a manager."""

import filecmp
import json
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

from docker.errors import APIError, NotFound
from docker.types import RestartPolicy, ServiceMode
from docker.utils import parse_bytes

from bundle_door.access.certificate import OF_SERVERS
from bundle_serving.address import Address
from bundle_serving.process.exposure import (
    CERTIFICATE,
    PRIVATE_KEY,
    compute_digest,
    is_loopback,
)
from extensions.swarm import spread, stack_file
from extensions.swarm.spread import Node
from extensions.swarm.stack_file import BALANCER, CANARY, KEY, S3, SERVER, TLS, Given
from scripts.base import console, files, interrupts
from scripts.base.errors import UserError
from scripts.base.paths import MARK, ROOT
from scripts.repository import live, place
from scripts.rollout import proofs
from scripts.rollout.servers import Servers
from scripts.stacks import admin_key, exposure, memory, state
from scripts.stacks.docker_engine import last_line, open_log, require_done
from scripts.stacks.many_servers import (
    LOG_S,
    TRIES,
    USUAL_REPLICAS,
    Progress,
    Room,
    Task,
    describe_stay,
    show_tasks,
)
from scripts.stacks.state import State

FOLDER = ROOT / "build" / "swarm"
# What runs, as `docker stack deploy` read it last.
DEPLOYED = FOLDER / "stack.json"
# A name may be another checkout's, and so may a path, on another manager.
OWN = ROOT / "build" / "swarm.id"
OWNER, OWNERS_PLACE = "triton-bundle.checkout", "triton-bundle.place"
# Without S3: one folder for each content that servers may read.
MODELS = FOLDER / "models"

NAMESPACE = "com.docker.stack.namespace"
FINGERPRINT = "triton-bundle.fingerprint"
# How a task of a server ends that is not told to, and how any task does.
FAILED = ("complete", "failed", "rejected")
OVER = (*FAILED, "shutdown", "orphaned", "remove")
ROLLBACK = "rollback_started"
GOING_ON = ("updating", ROLLBACK)
STOPPED = ("paused", "rollback_paused", "rollback_completed")
LEAVE_S = 60
NO_REASON = "its engine gives no reason"
HAND_OVER = "hand it over (make swarm-load NODES=ssh://user@node), or push it (make images PUSH=…)"


class SwarmStack(Servers):
    flavour = "swarm"

    def prepare(self) -> None:
        if not self.compose.engine.info()["Swarm"].get("ControlAvailable"):
            raise UserError(
                "this engine is not a manager of a swarm",
                "make it one: docker swarm init, then join others (extensions/swarm/README.md)",
            )
        self._require_own_stack()
        elsewhere = self.compose.elsewhere
        if elsewhere and is_loopback(elsewhere.host):
            raise UserError(
                f"other nodes cannot reach {elsewhere.endpoint}, which is this machine itself",
                "set REPOSITORY to an address that all nodes reach",
            )
        if self._settings.replicas:
            self._require_room(self._settings.replicas)
        super().prepare()

    def _find_room(self) -> Room:
        limit = memory.limit(self._settings)
        return Room(
            "swarm",
            [{"memory": Decimal(node.memory)} for node in self.nodes() if node.takes],
            {"memory": Decimal(parse_bytes(limit))},
            f"such servers (memory {limit} each)",
            "MEMORY (make swarm-up)",
        )

    def _require_own_stack(self) -> None:
        if place := self._another_place():
            raise UserError(
                f"the stack {self.project} of this swarm belongs to {place}",
                "give this checkout another COMPOSE_PROJECT_NAME",
            )

    def _another_place(self) -> str:
        """Whose stack of this name is on the swarm, if it is not this checkout's."""
        for each in self._manager.services.list(filters={"label": f"{NAMESPACE}={self.project}"}):
            labels = each.attrs["Spec"]["Labels"]
            # Bundles before wrote no owner.
            own = labels[OWNER] == _own_id() if OWNER in labels else DEPLOYED.exists()
            if not own:
                return str(labels.get(OWNERS_PLACE, "another checkout"))
        return ""

    def start(self, wanted: State) -> None:
        """Servers that answer, or those from before."""
        stack = self._prepare_stack(wanted)
        try:
            self._replace_balancers(stack)
            self._deploy(stack)  # without a canary, if there was one
            self.wait_until_settled(wanted.fingerprint)
        except BaseException:
            if DEPLOYED.exists():  # else the swarm would go on by itself
                console.note("going back to what ran before")
                with interrupts.ignore_interrupts():
                    self._deploy(json.loads(DEPLOYED.read_text()))
            raise
        _note(stack)
        wanted.save()
        self._leave_only(_name(wanted))
        self._forget_others(stack)
        self._spread(stack, wanted)

    def replace_each(self, wanted: State) -> Iterator[Task]:
        stack, came = self._prepare_stack(wanted), set[str]()
        self._replace_balancers(stack)
        while not came or any(task.fingerprint != wanted.fingerprint for task in self.tasks()):
            self._deploy(stack_file.one_at_a_time(stack, len(came)))
            task = self.wait_for_more(wanted.fingerprint, came)
            came.add(task.id)
            yield task

    def _replace_balancers(self, stack: dict[str, Any]) -> None:
        """Before the servers get another certificate, which those from before do not trust."""
        trusted = self._list_trusted()[:1]
        if trusted and self._list_certificates()[1:] == trusted and DEPLOYED.exists():
            self._deploy(stack_file.with_balancer(json.loads(DEPLOYED.read_text()), stack))
            with console.waiting("replacing the balancers") as waiting:
                while not self._are_balancers_settled():
                    if waiting.seconds > TRIES * self._settings.start_timeout:
                        raise UserError("the balancers do not start in time", "see make status")
                    time.sleep(0.5)

    def _prepare_stack(self, wanted: State) -> dict[str, Any]:
        self._hand_over_keys()
        stack = self._stack_file(wanted, self._place_copy(_name(wanted)))
        self._require_image(stack["services"][BALANCER]["image"])
        return stack

    def _require_image(self, image: str) -> None:
        """On each node: where it is missing, the balancer would stop, and none start. A registry's
        is pulled now, while nothing waits for it."""
        known = {task.node for task in self.tasks(BALANCER) if task.runs}
        if image != self._container_of(BALANCER).get("Image"):
            known = set()
        nodes = {n.id: n.name for n in self.nodes() if n.takes and n.name not in known}
        if not nodes:
            return
        name = f"{self.project}_look"
        for left in self._manager.services.list(filters={"name": name}):
            left.remove()
        look = self._manager.services.create(
            image,
            command=["true"],
            name=name,
            mode=ServiceMode("global"),  # of a job, the container would stay
            restart_policy=RestartPolicy("none"),
            labels={NAMESPACE: self.project, **_owner()},
        )
        try:
            with console.waiting("looking for the image on each node") as waiting:
                while nodes and waiting.seconds < self._settings.start_timeout:
                    for task in look.tasks():
                        status = task["Status"]
                        if status["State"] == "complete":
                            nodes.pop(task["NodeID"], None)
                        elif status["State"] in FAILED:
                            node = nodes.get(task.get("NodeID"), "a node")
                            why = status.get("Err", "it does not run there")
                            raise UserError(f"{node} lacks the image {image}: {why}", HAND_OVER)
                    time.sleep(0.2)
        finally:
            look.remove()
        if nodes:
            late = f"{', '.join(nodes.values())} did not have the image {image} in time"
            raise UserError(late, f"raise START_TIMEOUT, or {HAND_OVER}")

    def go_back(self, known: State, out_first: bool = False) -> None:
        stack = json.loads(DEPLOYED.read_text())
        others = any(task.runs and task.fingerprint == known.fingerprint for task in self.tasks())
        self._deploy(stack_file.out_first(stack) if out_first and others else stack)
        self.wait_until_settled(known.fingerprint)
        self._spread(stack, known)

    def _spread(self, stack: dict[str, Any], wanted: State) -> None:
        """An update starts a server before it stops one, on whichever node: all may end on one."""
        lie = [task.node for task in self.tasks()]
        counts = {node.name: lie.count(node.name) for node in self.nodes() if node.takes}
        if more := spread.to_move(counts):
            replicas = stack["services"][SERVER]["deploy"]["replicas"]
            console.note("spreading the servers over the nodes again")
            try:
                with suppress(UserError):  # where a node takes none
                    self._deploy(stack_file.with_replicas(stack, replicas + more))
                    self.wait_until_settled(wanted.fingerprint)
            finally:
                self._deploy(stack)
            self.wait_until_settled(wanted.fingerprint)

    def find_address(self, known: State, address: str) -> Address:
        """At the balancer here."""
        return replace(known.http, server=address)

    def show(self) -> None:
        show_tasks("swarm", (*self.servers(), *self.tasks(BALANCER)), self.problems())

    def problems(self) -> list[str]:
        """Of its nodes, and of how the servers lie on them."""
        on = {
            service: [task.node for task in self.tasks(service) if task.runs]
            for service in (SERVER, BALANCER)
        }
        return [*spread.problems(self.nodes(), on[SERVER], on[BALANCER], self.replicas or 0)]

    def try_out(self, wanted: State, count: int) -> None:
        new = self._prepare_stack(wanted)
        self._deploy(stack_file.with_canary(json.loads(DEPLOYED.read_text()), new, count))
        with console.waiting("starting the canary") as waiting:
            while sum(task.runs for task in self.tasks(CANARY)) < count:
                late = waiting.seconds > TRIES * self._settings.start_timeout
                if late or _find_ended(self._list_servers(wanted.fingerprint)):
                    raise self.refuse(wanted.fingerprint, "it does not start")
                time.sleep(0.5)

    def start_or_stop(self, known: State, replicas: int) -> None:
        if not replicas:
            raise UserError("a swarm has one server at least", "make swarm-down ends them all")
        self._require_room(replicas)
        stack = stack_file.with_replicas(json.loads(DEPLOYED.read_text()), replicas)
        self._deploy(stack)
        self.wait_until_settled(known.fingerprint)
        _note(stack)
        self._spread(stack, known)
        replace(known, settings=known.settings | {"REPLICAS": str(replicas)}).save()

    @property
    def image(self) -> str:
        """A name that each node has, and another one for another content: as it was pushed last, or
        for `make swarm-load`."""
        image, name = self.images.find_server(), self.images.name("server")
        # Where the engine keeps images in containerd, what was never pushed has a digest, too.
        for exact in map(str, image.attrs["RepoDigests"]):
            if exact.partition("@")[0] != name:
                return exact
        tag = str(image.id).removeprefix("sha256:")[:12]
        image.tag(name, tag)
        return f"{name}:{tag}"

    def load_into(self, host: str) -> None:
        """Hands the image to another engine, of which DOCKER_HOST would be this."""
        save = subprocess.Popen(["docker", "save", self.image], stdout=subprocess.PIPE)
        loaded = subprocess.run(
            ["docker", "--host", host, "load", "--quiet"],
            stdin=save.stdout,
            capture_output=True,
            text=True,
        )
        save.kill()
        if save.wait() > 0 or loaded.returncode:
            raise UserError(
                f"{host} does not take the image: {last_line(loaded.stderr)}",
                "give it as for DOCKER_HOST: NODES=ssh://user@node2,ssh://user@node3",
            )

    def _stack_file(self, wanted: State, models: Path | str) -> dict[str, Any]:
        server = self.compose.read(wanted=wanted)["services"]["server"]
        given = Given(
            self.project,
            self.image,
            models,
            self._settings.replicas or self.replicas or USUAL_REPLICAS,
            {8000: self._settings.http_port, 8001: self._settings.grpc_port},
            self._secrets(),
            {name: proofs.path(name, number) for name, number in wanted.pipelines.items()},
            _owner(),
            self._list_certificates(),
        )
        return stack_file.make_stack_file(server, given)

    def _list_certificates(self) -> list[str]:
        """The same as before where the newest is, so that the balancers stay."""
        shown = exposure.exposure_of(self._settings).certificate
        if not shown:
            return []
        now = compute_digest(shown)
        return [now, *[other for other in self._list_trusted() if other != now][:1]]

    def _list_trusted(self) -> list[str]:
        """By the balancers that run; by those of a bundle before, none that is told here."""
        env: list[str] = self._container_of(BALANCER).get("Env", [])
        return dict(each.split("=", 1) for each in env).get(OF_SERVERS, "").split()

    def _secrets(self) -> dict[str, Path]:
        found = {f"{KEY}/{admin_key.PATH.name}": admin_key.PATH}
        shown = exposure.exposure_of(self._settings)
        if shown.api_keys:
            found[f"{KEY}/{exposure.KEYS.name}"] = exposure.KEYS
        if shown.certificate:
            for name in (CERTIFICATE, PRIVATE_KEY):
                found[f"{TLS}/{name}"] = exposure.FOLDER / name
        if self.compose.elsewhere:
            found[S3] = self.compose.elsewhere.hand_over_keys()
            if self._settings.ca_bundle:
                authorities = stack_file.AUTHORITIES
                found[f"{authorities}/ca-certificates.crt"] = Path(self._settings.ca_bundle)
        return found

    def _deploy(self, stack: dict[str, Any]) -> None:
        self._require_own_stack()
        command = ["docker", "stack", "deploy", "--compose-file", "-", "--prune"]
        command += ["--with-registry-auth", "--resolve-image", "never", self.project]
        ran = subprocess.run(
            command, cwd=ROOT, input=json.dumps(stack), capture_output=True, text=True
        )
        require_done(ran, "the swarm does not take the stack")

    # What the servers read

    def _place_copy(self, name: str) -> Path | str:
        """A copy of the live repository that never changes: while servers are replaced, and if they
        are to come back, each reads what it was started with."""
        remote = place.open_folder(self._settings)
        if remote is None:
            # Another folder in its place would be none for servers that have it mounted.
            if not _has_all(MODELS / name, live.REPOSITORY):
                files.link_tree(live.REPOSITORY, MODELS / name)
            return MODELS / name
        copies = remote.place_beside("swarm")
        copies.mirror(live.REPOSITORY, to=name, known=remote.archive.prefix)
        return f"{copies.location}/{name}"

    def _leave_only(self, name: str) -> None:
        if remote := place.open_folder(self._settings):
            copies = remote.place_beside("swarm")
            own = {each.partition("/")[0] for each in copies.list(_own_id())}
            for other in own - {name}:
                copies.remove(f"{other}/")
        else:
            for folder in MODELS.iterdir():
                if folder.name != name:
                    shutil.rmtree(folder)

    def _forget_others(self, stack: dict[str, Any]) -> None:
        """Secrets and configs of earlier contents."""
        label = {"label": f"{NAMESPACE}={self.project}"}
        for kind in ("secrets", "configs"):
            for each in getattr(self._manager, kind).list(filters=label):
                if each.name not in stack[kind]:
                    with suppress(APIError):  # of a server that is about to end
                        each.remove()

    # What runs

    @property
    def _manager(self) -> Any:
        """The engine; what its package says of swarms has no types."""
        return self.compose.engine

    def tasks(self, service: str = SERVER) -> list[Task]:
        """Those that are to run, in the order of their nodes."""
        found = self._list_tasks(service)
        nodes = {node.id: node.name for node in self.nodes()}
        wanted = [each for each in found if each["DesiredState"] == "running"]
        return sorted(
            (_task(service, each, nodes.get(each.get("NodeID", ""), "")) for each in wanted),
            key=lambda task: (task.node, task.name),
        )

    def servers(self) -> list[Task]:
        return [*self.tasks(), *self.tasks(CANARY)]

    def nodes(self) -> list[Node]:
        found = [
            Node(
                each.attrs["ID"],
                each.attrs["Description"]["Hostname"],
                each.attrs["Status"]["State"],
                each.attrs["Spec"]["Availability"] == "active",
                each.attrs["Description"]["Resources"]["MemoryBytes"],
            )
            for each in self._manager.nodes.list()
        ]
        return sorted(found, key=attrgetter("name"))

    def _service(self, name: str = SERVER) -> Any:
        return self._manager.services.get(f"{self.project}_{name}").attrs

    def _container_of(self, service: str) -> dict[str, Any]:
        try:
            return dict(self._service(service)["Spec"]["TaskTemplate"]["ContainerSpec"])
        except NotFound:
            return {}

    @property
    def replicas(self) -> int | None:
        try:
            return int(self._service()["Spec"]["Mode"]["Replicated"]["Replicas"])
        except NotFound:
            return None

    def look(self, fingerprint: str) -> Progress:
        service = self._service()
        update, are_balancers_settled = _update(service), self._are_balancers_settled()
        replicas = service["Spec"]["Mode"]["Replicated"]["Replicas"]
        asked = service["Spec"]["TaskTemplate"]["ContainerSpec"]["Labels"][FINGERPRINT]
        tasks = self.tasks()
        new = sum(task.runs and task.fingerprint == fingerprint for task in tasks)
        settled = False
        if update not in GOING_ON and are_balancers_settled:
            if asked != fingerprint:
                raise self.refuse(fingerprint)
            settled = new == len(tasks) == replicas
        return Progress(new, replicas, settled, ", going back" if update == ROLLBACK else "")

    def require_hope(self, fingerprint: str) -> None:
        if _update(self._service()) in STOPPED:
            raise self.refuse(fingerprint)

    def _are_balancers_settled(self) -> bool:
        """And no other is to come: an update begins a moment after it was asked for."""
        service = self._manager.services.get(f"{self.project}_{BALANCER}")
        update = _update(service.attrs)
        if update in STOPPED:
            last = _find_ended(self._list_tasks(BALANCER))
            why = last["Status"].get("Err", "it ended by itself") if last else NO_REASON
            raise UserError(f"a balancer does not start: {why}", describe_stay())
        wanted = service.attrs["Spec"]["TaskTemplate"]["ContainerSpec"]
        return update not in GOING_ON and not any(
            each["DesiredState"] == "running" and each["Spec"]["ContainerSpec"] != wanted
            for each in service.tasks()
        )

    def _list_tasks(self, *services: str) -> list[dict[str, Any]]:
        """Also those that have ended."""
        found: list[dict[str, Any]] = []
        for service in services:
            with suppress(NotFound):
                found += self._manager.services.get(f"{self.project}_{service}").tasks()
        return found

    def _list_servers(self, fingerprint: str) -> list[dict[str, Any]]:
        found = self._list_tasks(SERVER, CANARY)
        return [each for each in found if _fingerprint(each) == fingerprint]

    def explain(self, fingerprint: str) -> str:
        """What the server said that ended last, or else its engine."""
        last = _find_ended(self._list_servers(fingerprint))
        if last is None:
            return NO_REASON
        said = _read_log(last["ID"], "--raw")
        if found := re.findall(r"error: the server is ended: (.*)", said):
            return str(found[-1])
        return str(last["Status"].get("Err", "it ended, or did not answer within START_TIMEOUT"))

    def read_log(self, fingerprint: str) -> str:
        return "".join(_read_log(each["ID"]) for each in self._list_servers(fingerprint))

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        """Of the servers and balancers that run; each line begins with whose it is, and its node.
        Of a whole service, Docker waits for ever where a node is gone."""
        option, balancers = "--follow" if follow else "", self.tasks(BALANCER)
        script = f'for task; do docker service logs {option} "$task" & done; wait'
        tasks = (each.id for each in (*self.servers(), *balancers))
        return open_log("sh", "-c", script, "logs", *tasks)

    def stop(self) -> bool:
        """Until no task runs on any node that is there."""
        label = {"label": f"{NAMESPACE}={self.project}"}
        if not self.compose.engine.info()["Swarm"].get("ControlAvailable"):
            return False
        if place := self._another_place():
            console.note(f"the stack {self.project} stays: it belongs to {place}")
        was = not place and bool(self._manager.services.list(filters=label))
        if was:
            subprocess.run(["docker", "stack", "rm", self.project], capture_output=True)
            deadline = time.monotonic() + LEAVE_S
            while time.monotonic() < deadline and any(
                each["Status"]["State"] not in OVER for each in self._manager.api.tasks(label)
            ):
                time.sleep(0.2)
        self.compose.remove_networks(self.project)  # of the steps
        shutil.rmtree(FOLDER, ignore_errors=True)
        state.forget()
        return was


def _find_ended(tasks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The last that ended by itself."""
    ended = (each for each in tasks if each["Status"]["State"] in FAILED)
    return max(ended, key=lambda task: str(task["Status"]["Timestamp"]), default=None)


def _read_log(task: str, *options: str) -> str:
    """Of a task, also one that has ended; nothing where its node is gone."""
    command = ["docker", "service", "logs", *options, task]
    with suppress(subprocess.TimeoutExpired):
        log = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LOG_S
        )
        return log.stdout + log.stderr
    return ""


def _own_id() -> str:
    """Of a copy of this checkout, another one."""
    if not OWN.exists():
        files.write(OWN, f"{secrets.token_hex(8)}\n")
    return f"{OWN.read_text().strip()}-{MARK}"


def _owner() -> dict[str, str]:
    return {OWNER: _own_id(), OWNERS_PLACE: f"{ROOT} on {socket.gethostname()}"}


def _name(wanted: State) -> str:
    """Of the copy of the models that its servers read, beside which another checkout's may lie."""
    return f"{_own_id()}-{wanted.fingerprint[:12]}"


def _update(service: dict[str, Any]) -> str | None:
    state: str | None = service.get("UpdateStatus", {}).get("State")
    return state


def _note(stack: dict[str, Any]) -> None:
    """Its secrets and configs are on the swarm now, whatever becomes of their files here."""
    there = {
        kind: {name: {"external": True, "name": name} for name in stack[kind]}
        for kind in ("secrets", "configs")
    }
    files.write(DEPLOYED, json.dumps(stack | there, indent=2) + "\n", 0o600)


def _task(service: str, found: dict[str, Any], node: str) -> Task:
    status = found["Status"]
    return Task(
        found["ID"],
        f"{service}.{found['Slot']}" if "Slot" in found else service,
        node,
        status["State"],
        _fingerprint(found),
        status.get("Err", ""),
        _address(found),
        status["State"] == "running",
        _address(found, 8001),
    )


def _address(task: dict[str, Any], port: int = 8000) -> str:
    """In the network of the stack, which is its only one."""
    attached = task.get("NetworksAttachments") or [{}]
    found = [each.partition("/")[0] for each in attached[0].get("Addresses") or ()]
    return f"{found[0]}:{port}" if found else ""


def _has_all(copy: Path, source: Path) -> bool:
    """A kill may leave half of what was to be removed; and a file that was damaged may be mended
    since."""
    for path in source.rglob("*"):
        there = copy / path.relative_to(source)
        if not (there.is_dir() if path.is_dir() else there.is_file() and filecmp.cmp(path, there)):
            return False
    return copy.exists()


def _fingerprint(task: dict[str, Any]) -> str:
    return str(task["Spec"]["ContainerSpec"].get("Labels", {}).get(FINGERPRINT, ""))
