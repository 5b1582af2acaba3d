"""A pod of Kubernetes as Docker containers that share its network and its volumes: with the pod's
user, environment, limits, mounts, probes and preStop, and a new container for one that ended."""

from __future__ import annotations

import base64
import ssl
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from tests.project import wait_until

Object = dict[str, Any]

SUFFIXES = {"Mi": 2**20, "Gi": 2**30}


def in_bytes(quantity: str) -> int:
    return int(quantity[:-2]) * SUFFIXES[quantity[-2:]]


@dataclass
class Pod:
    """Of the only Deployment among these objects; `claims` says where the content of each lies."""

    objects: list[Object]
    claims: dict[str, Path]
    folder: Path
    name: str
    image: str
    made: list[Any] = field(default_factory=list)

    @property
    def spec(self) -> Object:
        spec: Object = self._one("Deployment", "triton-bundle")["spec"]["template"]["spec"]
        return spec

    @property
    def _container(self) -> Object:
        (container,) = self.spec["containers"]
        return dict(container)

    def _one(self, kind: str, name: str) -> Object:
        (found,) = (
            each
            for each in self.objects
            if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        return found

    def __enter__(self) -> Pod:
        self._engine = docker.from_env(timeout=120)
        self._volumes = {each["name"]: self._volume(each) for each in self.spec["volumes"]}
        ports = {f"{each['containerPort']}/tcp": ("127.0.0.1", None) for each in self._ports()}
        # As kubelet's pause: it keeps the network, and the volumes that lie in memory.
        self.pause = self._run(
            "pause", command=["sleep", "infinity"], ports=ports, mounts=self._mounts(), init=True
        )
        self.pause.reload()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for container in reversed(self.made):
            with suppress(docker.errors.NotFound):
                container.remove(force=True)
        for source in self._volumes.values():
            if isinstance(source, str):
                self._engine.volumes.get(source).remove(force=True)

    def start(self) -> None:
        """Its container, in the place of an earlier one."""
        context = {**self.spec["securityContext"], **self._container["securityContext"]}
        (settings,) = self._container["envFrom"]
        self.server = self._run(
            f"server-{len(self.made)}",
            network_mode=f"container:{self.pause.id}",
            environment=self._one("ConfigMap", settings["configMapRef"]["name"])["data"],
            mounts=self._mounts(),
            user=f"{context['runAsUser']}:{context['runAsGroup']}",
            read_only=context["readOnlyRootFilesystem"],
            cap_drop=context["capabilities"]["drop"],
            security_opt=[] if context["allowPrivilegeEscalation"] else ["no-new-privileges:true"],
            mem_limit=in_bytes(self._container["resources"]["limits"]["memory"]),
        )

    def stop(self) -> int:
        """As an eviction does; the exit code."""
        drain = self._container["lifecycle"]["preStop"]["sleep"]["seconds"]
        time.sleep(drain)  # what the pod itself says
        self.server.stop(timeout=self.spec["terminationGracePeriodSeconds"] - drain)
        return int(self.server.wait()["StatusCode"])

    def passes(self, probe: str) -> bool:
        asked = self._container[f"{probe}Probe"]
        get = asked["httpGet"]
        url = f"{get['scheme'].lower()}://127.0.0.1:{self.port(get['port'])}{get['path']}"
        context = ssl._create_unverified_context()  # as a kubelet does
        try:
            with urllib.request.urlopen(
                url, timeout=asked["timeoutSeconds"], context=context
            ) as it:
                return bool(200 <= it.status < 400)
        except OSError:
            return False

    def until_started(self) -> None:
        asked = self._container["startupProbe"]

        def passes() -> bool:
            self.server.reload()
            assert self.server.status == "running", self.server.logs().decode()[-5000:]
            return self.passes("startup")

        wait_until(passes, "startup", asked["periodSeconds"] * asked["failureThreshold"])

    def port(self, name: str) -> int:
        """On this machine."""
        (inside,) = (each["containerPort"] for each in self._ports() if each["name"] == name)
        return int(self.pause.ports[f"{inside}/tcp"][0]["HostPort"])

    def _ports(self) -> list[Object]:
        return list(self._container["ports"])

    def _run(self, name: str, **options: Any) -> Any:
        container = self._engine.containers.run(
            self.image, name=f"{self.name}-{name}", detach=True, **options
        )
        self.made.append(container)
        return container

    def _mounts(self) -> list[docker.types.Mount]:
        return [self._mount(each) for each in self._container["volumeMounts"]]

    def _mount(self, asked: Object) -> docker.types.Mount:
        source = self._volumes[asked["name"]]
        kind = "volume" if isinstance(source, str) else "bind"
        if isinstance(source, Path) and "subPath" in asked:
            source = source / asked["subPath"]
        read_only = asked.get("readOnly", False)
        # Docker would give a volume the mode of the folder below it, a kubelet does not.
        fresh = {"no_copy": True} if kind == "volume" else {}
        return docker.types.Mount(asked["mountPath"], str(source), kind, read_only, **fresh)

    def _volume(self, asked: Object) -> str | Path:
        """A volume's name, or a folder."""
        name = f"{self.name}-{asked['name']}"
        if "secret" in asked:
            return self._secret(asked["secret"])
        if "persistentVolumeClaim" in asked:
            return self.claims[asked["persistentVolumeClaim"]["claimName"]]
        options = {}
        if asked["emptyDir"].get("medium") == "Memory":
            limit = (
                asked["emptyDir"].get("sizeLimit")
                or self._container["resources"]["limits"]["memory"]
            )
            how = f"size={in_bytes(limit)},mode=777"
            options = {"type": "tmpfs", "device": "tmpfs", "o": how}
        self._engine.volumes.create(name, driver_opts=options)
        if not options:
            return self._opened(name)
        return name

    def _opened(self, name: str) -> str:
        """A kubelet lets everyone write in what was empty."""
        self._engine.containers.run(
            self.image,
            ["chmod", "777", "/it"],
            user="root",
            remove=True,
            mounts=[docker.types.Mount("/it", name, no_copy=True)],
        )
        return name

    def _secret(self, asked: Object) -> Path:
        folder = self.folder / asked["secretName"]
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (self._one("Secret", asked["secretName"]).get("data") or {}).items():
            (folder / name).write_bytes(base64.b64decode(content))
            (folder / name).chmod(asked["defaultMode"])
        return folder
