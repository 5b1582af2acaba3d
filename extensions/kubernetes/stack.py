"""Flavour kubernetes: the server of flavour cpu, many times, in the pods of a Deployment. The steps
run on this machine, which has kubectl."""

import json
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import psutil
import yaml

from bundle_serving.address import Address
from bundle_serving.process.server_log import first_error
from extensions.kubernetes import applied, claim, kustomization, pods, preflight, where
from extensions.kubernetes import settings as own
from extensions.kubernetes.kubectl import Kubectl, Object, Refused, find_context
from extensions.kubernetes.pods import CANARY, EVERY, FINGERPRINT, SERVICE
from extensions.kubernetes.relay import HOST, HTTP
from scripts.base import console, files, interrupts, ports
from scripts.base.errors import UserError
from scripts.base.paths import PYTHON, ROOT
from scripts.repository import live
from scripts.rollout import proofs
from scripts.rollout.servers import Servers
from scripts.stacks import certificates, state
from scripts.stacks.docker_engine import open_log
from scripts.stacks.local import list_words
from scripts.stacks.many_servers import (
    SERVER,
    Progress,
    Room,
    Task,
    describe_stay,
    show_tasks,
)
from scripts.stacks.state import State

FOLDER = ROOT / "build" / "cluster"
# What runs, as the cluster was last given it.
DEPLOYED = FOLDER / "objects.json"
RELAY, RELAY_LOG = FOLDER / "relay.json", FOLDER / "relay.log"
RELAY_S = 20


class KubernetesStack(Servers):
    flavour = "kubernetes"
    # What this command has put on the claim.
    _placed = ""

    @cached_property
    def _kubectl(self) -> Kubectl:
        namespace, context = (
            each.value_in(self._settings) for each in (own.namespace, own.context)
        )
        return Kubectl(namespace, context)

    def prepare(self) -> None:
        find_context()
        if not self._settings.registry:
            raise UserError(
                "no REGISTRY given, from which the cluster takes the image",
                "REGISTRY=registry.example/team, to which make images PUSH= has pushed it",
            )
        preflight.require_namespace(self._kubectl)
        with_role = bool(own.s3_role.value_in(self._settings))
        preflight.require_rights(self._kubectl, self.compose.elsewhere is None, with_role)
        if self._settings.replicas:
            self._require_room(self._settings.replicas)
        if self.compose.elsewhere is None:
            preflight.require_storage(self._kubectl)
        if not DEPLOYED.exists() and self._kubectl.get("deployment", SERVICE):
            raise UserError(
                f"the Deployment {SERVICE} of {self._kubectl.namespace} is not this checkout's",
                "set another NAMESPACE, or remove it: helm uninstall, or kubectl --namespace "
                f"{self._kubectl.namespace} delete deployment {SERVICE}",
            )
        self._require_image()
        super().prepare()
        certificates.make(self._settings)
        self._renew_keys()

    def _find_room(self) -> Room | None:
        return preflight.find_room(self._kubectl, kustomization.requests(self._settings))

    def _require_image(self) -> None:
        """In the cluster, before minutes of building here."""
        image = kustomization.name_image(self._settings.registry)
        if applied.read_image(_read_deployed()) != image:
            claim.require_image(self._kubectl, image, self._settings.start_timeout)

    def _renew_keys(self) -> None:
        """Of what runs: no pod is replaced for them, so nothing else would tell the cluster."""
        objects, renewed = _read_deployed(), list[Object]()
        keys = kustomization.read_keys(self._settings, self.compose.elsewhere)
        for each in objects:
            end = each["metadata"]["name"].removeprefix(f"{SERVICE}-")
            if each["kind"] == "Secret" and end in keys:
                encoded = {
                    name: b64encode(text.encode()).decode() for name, text in keys[end].items()
                }
                if each["data"] != encoded:
                    each["data"] = encoded
                    renewed.append(each)
        if renewed:
            self._kubectl.apply(renewed)
            self._note(objects)
            console.note("pods see the new keys within a minute or so")

    def start(self, wanted: State) -> None:
        """Servers that answer, or those from before."""
        before = _read_deployed()
        objects = self._render(wanted)
        preflight.require_accepted(self._kubectl, objects)
        self._place(objects)
        if not before:  # so that `stop` finds what has come, if this ends half way
            self._note(objects)
        try:
            self._apply(objects)
            self.wait_until_settled(wanted.fingerprint)
        except BaseException:
            if before:
                console.note("going back to what ran before")
                with interrupts.ignore_interrupts():
                    self._apply(before)
            else:
                console.note("removing what had been applied")  # as all that does not come up
            raise
        self._note(objects)
        wanted.save()
        self._forget_others(objects)
        self._require_relay()

    def replace_each(self, wanted: State) -> Iterator[Task]:
        self._end_canary()
        objects, came = self._place(self._render(wanted)), set[str]()
        while len(came) < (self.replicas or 1):
            fresh = [task for task in self.find_serving(wanted.fingerprint) if task.id not in came]
            if not fresh:
                # An old one may end for each that has been judged, and one more comes.
                self._apply(applied.hold(objects, surge=1, unavailable=len(came)))
                fresh = [self.wait_for_more(wanted.fingerprint, came)]
            came.add(fresh[0].id)
            yield fresh[0]

    def try_out(self, wanted: State, count: int) -> None:
        objects = self._place(self._render(wanted))
        self._kubectl.apply(applied.make_canary(objects, count))
        self.wait_for_more(wanted.fingerprint, set(), count)

    def _end_canary(self) -> None:
        """If there is one; its pods end before its name goes."""
        words = ("--ignore-not-found", "--cascade=foreground")
        self._kubectl.run("delete", "deployment", CANARY, *words)
        self._kubectl.run("delete", "networkpolicy", CANARY, applied.ASKED, "--ignore-not-found")

    def go_back(self, known: State, out_first: bool = False) -> None:
        objects = _require_deployed(known)
        self._end_canary()
        others = [task for task in self.servers() if task.fingerprint != known.fingerprint]
        some_stay = any(
            task.fingerprint == known.fingerprint for task in self.servers() if task.runs
        )
        if out_first and others and some_stay:
            self._apply(applied.set_strategy(objects, surge=1, unavailable=len(others)))
            self.wait_until_settled(known.fingerprint)
        self._apply(objects)
        self.wait_until_settled(known.fingerprint)
        self._require_relay()

    def start_or_stop(self, known: State, replicas: int) -> None:
        self._require_room(replicas)
        objects = applied.scale(_require_deployed(known), replicas)
        self._apply(objects)
        self._set_number(replicas)
        self.wait_until_settled(known.fingerprint)
        self._note(objects)
        replace(known, settings=known.settings | {"REPLICAS": str(replicas)}).save()

    # What the cluster is given

    def _render(self, wanted: State) -> list[Object]:
        registry = self._settings.registry.rstrip("/")
        given = {name: proofs.path(name, number) for name, number in wanted.pipelines.items()}
        folder = kustomization.write(self._settings, registry, given)
        rendered = subprocess.run(
            ["kubectl", "kustomize", str(folder)], capture_output=True, text=True
        )
        if rendered.returncode:
            raise UserError(
                f"kubectl cannot read {folder.relative_to(ROOT)}: {rendered.stderr.strip()}",
                "kubectl 1.27 or later can",
            )
        objects = _leave_claim(yaml.safe_load_all(rendered.stdout))
        applied.mark(objects, wanted.fingerprint)
        if self.compose.elsewhere is None:
            applied.mount(objects, kustomization.name_contents(live.REPOSITORY))
        if self._settings.replicas:
            objects = applied.scale(objects, self._settings.replicas)
        return objects

    def _place(self, objects: list[Object]) -> list[Object]:
        """What they need is in the cluster, before anything is replaced."""
        if self.compose.elsewhere is not None:
            self._require_image()
        elif (name := applied.read_mounted(objects)) != self._placed:
            image, other = applied.read_image(objects), applied.read_mounted(_read_deployed())
            claim.put(self._kubectl, image, name, other, self._settings.start_timeout)
            self._placed = name
        return objects

    def _apply(self, objects: list[Object]) -> None:
        self._kubectl.apply(objects)
        if self._settings.replicas:
            self._set_number(self._settings.replicas)

    def _set_number(self, replicas: int) -> None:
        """At once; the autoscaler would do it in a while."""
        self._kubectl.run("scale", f"deployment/{SERVICE}", f"--replicas={replicas}")

    def _forget_others(self, objects: list[Object]) -> None:
        """ConfigMaps of earlier contents."""
        now = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
        for each in self._kubectl.list("configmaps"):
            name = each["metadata"]["name"]
            if name.startswith((f"{SERVICE}-settings-", f"{SERVICE}-proofs-")) and name not in now:
                self._kubectl.run("delete", "configmap", name, "--ignore-not-found")

    def _note(self, objects: list[Object]) -> None:
        where.note(self._settings)
        files.write(DEPLOYED, json.dumps(objects, indent=2) + "\n", 0o600)

    # What runs

    def servers(self) -> list[Task]:
        found = map(pods.read_task, self._pods())
        return sorted(found, key=lambda task: (task.node, task.name))

    def _pods(self) -> list[Object]:
        return self._kubectl.list("pods", f"--selector={EVERY}")

    @property
    def replicas(self) -> int | None:
        deployment = self._kubectl.get("deployment", SERVICE)
        return int(deployment["spec"]["replicas"]) if deployment else None

    def look(self, fingerprint: str) -> Progress:
        deployment = self._kubectl.get("deployment", SERVICE)
        if not deployment:
            raise UserError(f"somebody has removed the Deployment {SERVICE}", "make cluster-up")
        wanted = deployment["spec"]["replicas"]
        new = len(self.find_serving(fingerprint))
        settled = applied.is_settled(deployment, fingerprint) and new == wanted
        if not settled:
            self.require_hope(fingerprint)
        return Progress(new, wanted, settled)

    def require_hope(self, fingerprint: str) -> None:
        deployment = self._kubectl.get("deployment", SERVICE)
        for each in deployment.get("status", {}).get("conditions", ()):
            if each["type"] == "ReplicaFailure" and each["status"] == "True":
                raise UserError(f"the cluster makes no pod: {each['message']}", describe_stay())
        for pod in self._pods():
            of_it = pod["metadata"].get("annotations", {}).get(FINGERPRINT) == fingerprint
            if of_it and not pods.is_ending(pod) and pods.is_hopeless(pod):
                image = pods.explain(pod)
                pushed = "push it: make images PUSH=…; " if "mage" in image else ""
                raise UserError(self.refuse(fingerprint).cause, pushed + describe_stay())

    def explain(self, fingerprint: str) -> str:
        """What the one said that ended, or else the cluster; last of what was evicted, perhaps
        weeks ago."""
        for task in sorted(self.servers(), key=lambda task: task.state == "failed"):
            if task.fingerprint != fingerprint or task.runs:
                continue
            for said in self._read_logs(task):
                ended = [line for line in said.splitlines() if "the server is ended: " in line]
                if found := (ended[-1:] or [first_error(said) or ""])[0]:
                    return found.partition("the server is ended: ")[2] or found
            if task.error:
                return task.error
        return "the cluster gives no reason"

    def read_log(self, fingerprint: str) -> str:
        its_own = [task for task in self.servers() if task.fingerprint == fingerprint]
        return "".join(said for task in its_own for said in self._read_logs(task, "--prefix"))

    def _read_logs(self, task: Task, *options: str) -> Iterator[str]:
        """Of its container, and first of the one before if there was one."""
        words = ("logs", task.name, "--container=server", "--tail=2000", *options)
        for previous in (["--previous"], []):
            with suppress(UserError):
                yield self._kubectl.run(*words, *previous, patience=0)

    def alive(self, service: str = SERVER) -> bool:
        found = super().alive()
        if found:
            self._require_relay()
        return found

    def show(self) -> None:
        found, wanted = self.servers(), self.replicas or 0
        running = sum(task.runs for task in found)
        problems = [f"{running} of {wanted} servers run"] if running < wanted else []
        show_tasks("cluster", found, problems)

    def log_process(self, follow: bool) -> subprocess.Popen[str]:
        words = ["logs", f"--selector={EVERY}", "--container=server", "--prefix", "--tail=-1"]
        # Of a pod that has no log yet, kubectl would give up all others'.
        words += ["--max-log-requests=100", "--ignore-errors", *(["--follow"] if follow else [])]
        return open_log(*self._kubectl.command(*words))

    def stop(self) -> bool:
        """What is on the claim stays."""
        self._end_relay()
        if objects := _read_deployed():
            self._end_canary()
            given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
            self._kubectl.run("delete", "--ignore-not-found", "--filename=-", given=given)
            self._wait_until_gone()
        shutil.rmtree(FOLDER, ignore_errors=True)
        state.forget()
        return bool(objects)

    def _wait_until_gone(self) -> None:
        try:
            every = f"--selector={EVERY}"
            self._kubectl.run("wait", "--for=delete", "--timeout=90s", "pods", every)
        except Refused as fault:
            if "timed out" not in fault.cause:
                raise
            left = ", ".join(pod["metadata"]["name"] for pod in self._pods())
            console.note(f"the cluster has yet to end {left}, perhaps on a node that is down")

    # This machine's ports

    def find_address(self, known: State, address: str) -> Address:
        try:
            forwarded = files.read_json(RELAY)["pods"][address][str(HTTP)]
        except KeyError:
            raise ConnectionError(f"{address} is not reached") from None
        return replace(known.http, host=HOST, port=forwarded)

    def _require_relay(self) -> None:
        """It runs, and for this cluster; else it is started."""
        if _find_relay(self._relay_command[1:]):
            return
        self._end_relay()
        wanted = {"HTTP_PORT": self._settings.http_port, "GRPC_PORT": self._settings.grpc_port}
        ports.require_free(HOST, wanted, "cluster-up")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with RELAY_LOG.open("ab") as log:
            relay = interrupts.start_apart(self._relay_command, log, {})
        with console.waiting("reaching the pods from here") as waiting:
            while not self._is_open(relay.pid):
                if relay.poll() is not None or waiting.seconds > RELAY_S:
                    raise UserError(
                        "no pod is reached from here: kubectl port-forward does not work",
                        f"see {RELAY_LOG.relative_to(ROOT)}",
                    )
                time.sleep(0.1)

    @property
    def _relay_command(self) -> list[str]:
        words = [self._kubectl.namespace, self._kubectl.context]
        words += [str(self._settings.http_port), str(self._settings.grpc_port), str(RELAY)]
        return [str(PYTHON), "-m", "extensions.kubernetes.relay", *words]

    def _is_open(self, pid: int) -> bool:
        noted = files.read_json(RELAY)
        return noted.get("pid") == pid and bool(noted["pods"])

    def _end_relay(self) -> None:
        if relay := _find_relay([str(RELAY)]):
            with suppress(psutil.Error):
                relay.terminate()
                relay.wait(10)
        RELAY.unlink(missing_ok=True)


def _find_relay(words: list[str]) -> psutil.Process | None:
    """The one of this checkout, if its command ends so."""
    with suppress(KeyError, psutil.Error):
        relay = psutil.Process(files.read_json(RELAY)["pid"])
        if list_words(relay)[-len(words) :] == words:
            return relay
    return None


def _leave_claim(objects: Iterable[Object]) -> list[Object]:
    """It stays, with what is on it, and may be larger than ours."""
    return [each for each in objects if each["kind"] != "PersistentVolumeClaim"]


def _read_deployed() -> list[Object]:
    # Bundles before noted the claim too.
    return _leave_claim(json.loads(DEPLOYED.read_text())) if DEPLOYED.exists() else []


def _require_deployed(known: State) -> list[Object]:
    found = _read_deployed()
    if found and applied.read_fingerprint(applied.find_deployment(found)) == known.fingerprint:
        return found
    raise UserError(f"{DEPLOYED.relative_to(ROOT)} does not say what ran before", "make cluster-up")
