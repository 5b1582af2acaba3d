"""A pod of Kubernetes as Docker containers that share its network and its volumes: with the pod's
user, environment, limits, mounts, probes and preStop, and a new container for one that ended."""

from __future__ import annotations

import base64
import re
import ssl
import time
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import docker
from tests.project import wait_until

Object = dict[str, Any]

SUFFIXES = {"Mi": 2**20, "Gi": 2**30}


def in_bytes(quantity: str) -> int:
    return int(quantity[:-2]) * SUFFIXES[quantity[-2:]]


class Pod:
    """Of the only Deployment or Job among these objects. `claims` says where the content of each
    lies, `images` what each is called here."""

    def __init__(
        self,
        objects: list[Object],
        claims: dict[str, Path],
        images: dict[str, str],
        folder: Path,
        name: str,
    ) -> None:
        self._objects, self._claims, self._images = objects, claims, images
        self._folder, self._name = folder, name
        (owner,) = (each for each in objects if each["kind"] in ("Deployment", "Job"))
        self._spec: Object = owner["spec"]["template"]["spec"]
        self._made: list[Any] = []

    def __enter__(self) -> Pod:
        self._engine = docker.from_env(timeout=120)
        self._volumes = {each["name"]: self._volume(each) for each in self._spec["volumes"]}
        ports: Any = {f"{each['containerPort']}/tcp": ("127.0.0.1", None) for each in self._ports}
        mounts = {each["mountPath"]: each for each in self._main["volumeMounts"]}
        # As kubelet's pause: it keeps the network, and the volumes that lie in memory.
        self._pause = self._engine.containers.run(
            self._image(self._main),
            ["sleep", "infinity"],
            name=f"{self._name}-pause",
            detach=True,
            init=True,
            ports=ports,
            mounts=[self._mount(each) for each in mounts.values()],
        )
        self._made.append(self._pause)
        self._pause.reload()
        return self

    def __exit__(self, *_: object) -> None:
        for container in reversed(self._made):
            with suppress(docker.errors.NotFound):
                container.remove(force=True, v=True)
        for source in self._volumes.values():
            if isinstance(source, str):
                self._engine.volumes.get(source).remove(force=True)

    def completed(self) -> str:
        """What the containers of a job said, each of which must end well before the next one."""
        said = ""
        for each in (*self._spec["initContainers"], self._main):
            container = self._run(each)
            code = container.wait(timeout=900)["StatusCode"]
            said += container.logs().decode()
            assert code == 0, f"{each['name']}: {said}"
        return said

    def start(self) -> None:
        """Its container, in the place of an earlier one, until the startup probe passes."""
        self.server = self._run(self._main)
        asked = self._main["startupProbe"]

        def passes() -> bool:
            self.server.reload()
            assert self.server.status == "running", self.server.logs().decode()[-5000:]
            return self.passes("startup")

        wait_until(passes, "startup", asked["periodSeconds"] * asked["failureThreshold"])

    def stop(self) -> int:
        """As an eviction does; the exit code."""
        drain = self._main["lifecycle"]["preStop"]["sleep"]["seconds"]
        time.sleep(drain)  # what the pod itself says
        self.server.stop(timeout=self._spec["terminationGracePeriodSeconds"] - drain)
        return int(self.server.wait()["StatusCode"])

    def passes(self, probe: str) -> bool:
        asked = self._main[f"{probe}Probe"]
        get, timeout = asked["httpGet"], asked["timeoutSeconds"]
        url = f"{get['scheme'].lower()}://127.0.0.1:{self.port(get['port'])}{get['path']}"
        context = ssl._create_unverified_context()  # as a kubelet does
        try:
            with urllib.request.urlopen(url, timeout=timeout, context=context) as answer:
                return bool(200 <= answer.status < 400)
        except OSError:
            return False

    def port(self, name: str) -> int:
        """On this machine."""
        (inside,) = (each["containerPort"] for each in self._ports if each["name"] == name)
        published = self._pause.ports[f"{inside}/tcp"]
        assert published
        return int(published[0]["HostPort"])

    @property
    def _main(self) -> Object:
        (container,) = self._spec["containers"]
        return dict(container)

    @property
    def _ports(self) -> list[Object]:
        return list(self._main.get("ports", ()))

    def _one(self, kind: str, name: str) -> Object:
        (found,) = (
            each
            for each in self._objects
            if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        return found

    def _image(self, asked: Object) -> str:
        name = asked["image"].rpartition("/")[2].partition(":")[0]
        return self._images[name]

    def _run(self, asked: Object) -> Any:
        context = {**self._spec["securityContext"], **asked["securityContext"]}
        environment = self._environment(asked)
        expanded = partial(re.sub, r"\$\((\w+)\)", lambda found: environment[found[1]])
        escalation = context["allowPrivilegeEscalation"]
        container = self._engine.containers.run(
            self._image(asked),
            [expanded(word) for word in asked.get("command", ())] or None,
            name=f"{self._name}-{asked['name']}-{len(self._made)}",
            detach=True,
            network_mode=f"container:{self._pause.id}",
            working_dir=asked.get("workingDir"),
            environment=environment,
            mounts=[self._mount(each) for each in asked["volumeMounts"]],
            user=f"{context['runAsUser']}:{context['runAsGroup']}",
            read_only=context["readOnlyRootFilesystem"],
            cap_drop=context["capabilities"]["drop"],
            security_opt=[] if escalation else ["no-new-privileges:true"],
            mem_limit=in_bytes(asked["resources"]["limits"]["memory"]),
        )
        self._made.append(container)
        return container

    def _environment(self, asked: Object) -> dict[str, str]:
        names = [each["configMapRef"]["name"] for each in asked.get("envFrom", ())]
        of_maps = [self._one("ConfigMap", name)["data"] for name in names]
        own = {each["name"]: each["value"] for each in asked.get("env", ())}
        return {name: value for each in (*of_maps, own) for name, value in each.items()}

    def _mount(self, asked: Object) -> docker.types.Mount:
        source = self._volumes[asked["name"]]
        if isinstance(source, Path) and "subPath" in asked:
            source = source / asked["subPath"]
        volume = isinstance(source, str)
        return docker.types.Mount(
            asked["mountPath"],
            str(source),
            "volume" if volume else "bind",
            read_only=asked.get("readOnly", False),
            # Docker would give a volume the mode of the folder below it, a kubelet does not.
            no_copy=volume,
        )

    def _volume(self, asked: Object) -> str | Path:
        """A volume's name, or a folder."""
        if "secret" in asked:
            return self._secret(asked["secret"])
        if "persistentVolumeClaim" in asked:
            return self._claims[asked["persistentVolumeClaim"]["claimName"]]
        name = f"{self._name}-{asked['name']}"
        if asked["emptyDir"].get("medium") == "Memory":
            limit = asked["emptyDir"].get("sizeLimit", "1Gi")
            how = {"type": "tmpfs", "device": "tmpfs", "o": f"size={in_bytes(limit)},mode=777"}
            self._engine.volumes.create(name, driver_opts=how)
            return name
        self._engine.volumes.create(name)
        # A kubelet lets everyone write there.
        mount = docker.types.Mount("/it", name, no_copy=True)
        self._engine.containers.run(
            self._image(self._main),
            ["chmod", "777", "/it"],
            user="root",
            remove=True,
            mounts=[mount],
        )
        return name

    def _secret(self, asked: Object) -> Path:
        folder = self._folder / str(asked["secretName"])
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (self._one("Secret", asked["secretName"]).get("data") or {}).items():
            (folder / name).write_bytes(base64.b64decode(content))
            (folder / name).chmod(asked["defaultMode"])
        return folder
