"""Nodes of a real Kubernetes on this machine: each a kubelet, containerd and kube-proxy in network
and mount namespaces of their own, and one scheduler and controller manager for all.

    with nodes.start(2, folder) as cluster:
        cluster.load("image:tag")
        cluster.kubectl("apply", "--kustomize", "build/kubernetes")

Pods of different nodes reach each other by routes. A stand-in answers for the cluster's DNS, and
nothing enforces a NetworkPolicy. When the block ends, nothing is left.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pytest

from extensions.kubernetes.tests import cluster as control_plane
from extensions.kubernetes.tests import dns
from extensions.kubernetes.tests.cluster import (
    PROXIES,
    SERVICES,
    Cluster,
    Program,
    kubeconfig,
    running,
)
from scripts.stacks.images import find_digest
from tests.project import run, wait_until
from tests.surroundings import machines

NODES = "10.219.0"
HOST = f"{NODES}.254"
PODS = "10.220.{}.0/24"
START_S = 120
NOTHING: Mapping[str, str] = MappingProxyType({})
NEEDED = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
}
# Docker's is not CRI's: what keeps a pod's namespaces.
PAUSE = "localhost/pause:1"
# It may be stopped, killed and started again, and what it mounts is its own.
STAY = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /var/log && exec sleep infinity"


def require_node_programs() -> None:
    control_plane.require_programs()
    if os.geteuid():
        pytest.skip("no nodes of Kubernetes here: they need root")
    for program, package in NEEDED.items():
        if not shutil.which(program):
            pytest.skip(f"no nodes of Kubernetes here: {package} is not installed")


@dataclass
class Node:
    number: int
    name: str
    folder: Path
    programs: Path
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, init=False)

    @property
    def title(self) -> str:
        """As the cluster calls it."""
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return f"{NODES}.{self.number}"

    @property
    def pods(self) -> str:
        return PODS.format(self.number)

    @property
    def inside(self) -> list[str]:
        """Before a command that is to run on this node."""
        return ["nsenter", f"--target={self._processes['stay'].pid}", "--net", "--mount", "--uts"]

    @property
    def socket(self) -> Path:
        return self.folder / "cri"

    def start(self) -> None:
        command = [*machines.enter(self.name), "unshare", "--mount", "--uts", "sh", "-c"]
        self._run("stay", *command, f"hostname {self.title} && {STAY}", str(self.folder))
        wait_until(lambda: self.run("hostname").strip() == self.title, "its namespaces")
        self.start_part("containerd")
        wait_until(self._has_containers, f"containerd (log: {self.folder})", START_S)
        self.start_part("kubelet")
        self.start_part("kube-proxy")

    def start_part(self, name: str) -> None:
        program = name if name == "containerd" else str(self.programs / name)
        self._run(name, *self.inside, program, *self._words(name))

    def stop_part(self, name: str) -> None:
        """Killed: it has no time to say good-bye."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill(self) -> None:
        """As a machine that loses its power."""
        machines.kill(self.folder)
        for process in self._processes.values():
            process.kill()  # what names no folder: who keeps the namespaces
            process.wait()
        self._processes.clear()

    def run(self, *words: str) -> str:
        return run(*self.inside, *words)

    def ctr(self, *words: str) -> str:
        return self.run("ctr", f"--address={self.socket}", "--namespace=k8s.io", *words)

    def _has_containers(self) -> bool:
        try:
            return bool(self.ctr("version"))
        except subprocess.CalledProcessError:
            return False

    def _words(self, name: str) -> list[str]:
        if name == "containerd":
            return [f"--config={self.folder}/containerd.toml"]
        if name == "kube-proxy":
            return [f"--config={self.folder}/proxy.yaml"]
        return [
            *(f"--config={self.folder}/kubelet.yaml", f"--kubeconfig={self.folder}/kubeconfig"),
            *(f"--hostname-override={self.title}", f"--node-ip={self.address}"),
            *(f"--root-dir={self.folder}/kubelet", f"--cert-dir={self.folder}/certificates"),
        ]

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def configure(self, cluster: Cluster) -> None:
        for name, text in {
            "containerd.toml": CONTAINERD,
            "cni/10-bridge.conf": BRIDGE,
            "kubelet.yaml": KUBELET,
            "proxy.yaml": PROXY,
            "resolv.conf": "",
        }.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            for word, value in {
                "FOLDER": str(self.folder),
                "SOCKET": str(self.socket),
                "NAME": self.name,
                "TITLE": self.title,
                "ADDRESS": self.address,
                "HOST": HOST,
                "PODS": self.pods,
                "PAUSE": PAUSE,
            }.items():
                text = text.replace(f"@{word}@", value)
            file.write_text(text)
        for name, user in {"kubeconfig": self.title, "proxy.kubeconfig": PROXIES}.items():
            text = kubeconfig(cluster.url, cluster.folder, user)
            (self.folder / name).write_text(text)
        for controller in Path("/sys/fs/cgroup").iterdir():
            if controller.is_dir() and not controller.is_symlink():
                (controller / self.name).mkdir(exist_ok=True)


CONTAINERD = """
version = 2
root = "@FOLDER@/containerd"
state = "@FOLDER@/run"
[grpc]
address = "@SOCKET@"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "@PAUSE@"
# It may not be lowered where root lacks CAP_SYS_RESOURCE.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "@FOLDER@/cni"
"""

BRIDGE = """
{
  "cniVersion": "0.4.0",
  "name": "pods",
  "type": "bridge",
  "bridge": "cni0",
  "isGateway": true,
  "ipam": {
    "type": "host-local",
    "dataDir": "@FOLDER@/addresses",
    "ranges": [[{"subnet": "@PODS@"}]],
    "routes": [{"dst": "0.0.0.0/0"}]
  }
}
"""

KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: @ADDRESS@
containerRuntimeEndpoint: unix://@SOCKET@
cgroupDriver: cgroupfs
cgroupRoot: /@NAME@
failSwapOn: false
resolvConf: @FOLDER@/resolv.conf
clusterDomain: cluster.local
clusterDNS: [@HOST@]
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
# The disk is this machine's, and not the node's to keep in order.
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 4s
"""

PROXY = """
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: @TITLE@
clientConnection: {kubeconfig: @FOLDER@/proxy.kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
# This machine asks through one node, and pods on the other answer by the same way.
iptables: {masqueradeAll: true, minSyncPeriod: 0s, syncPeriod: 10s}
"""


@dataclass(frozen=True)
class Nodes:
    """A cluster whose pods run."""

    plane: Cluster
    nodes: list[Node]

    def load(self, image: str) -> None:
        """From the engine of this machine to each node. Where the engine keeps its images in
        containerd, one has a digest before it is pushed, and is named by that in a cluster."""
        exact = find_digest(image)
        for node in self.nodes:
            ctr = [*node.inside, "ctr", f"--address={node.socket}", "--namespace=k8s.io", "images"]
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                command = [*ctr, "import", "-"]
                subprocess.run(command, stdin=saved.stdout, check=True, capture_output=True)
            if exact:
                named = f"{image.rpartition(':')[0]}@{exact}"
                subprocess.run([*ctr, "tag", image, named], check=True, capture_output=True)


def make_volume(cluster: Cluster, folder: Path, namespace: str, claim: str) -> None:
    """For this claim; all nodes see it, and pods may write there as fsGroup lets them elsewhere."""
    folder.mkdir()
    folder.chmod(0o777)
    spec = {
        "capacity": {"storage": "6Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": namespace, "name": claim},
    }
    about = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"}}
    cluster.kubectl("apply", "--filename=-", given=json.dumps(about | {"spec": spec}))


@contextmanager
def start(count: int, folder: Path, others: Mapping[str, str] = NOTHING) -> Iterator[Nodes]:
    """`others`: addresses of names beside those of Services."""
    require_node_programs()
    mark = f"tbk-{os.getpid()}"
    with ExitStack() as stack:
        machines.make_bridge(stack, mark, HOST, f"tbk{os.getpid()}")
        numbers = range(1, count + 1)
        titles = [f"node{number}" for number in numbers]
        plane = stack.enter_context(control_plane.start(folder / "plane", HOST, titles))
        nodes = []
        for number in numbers:
            node = Node(number, f"{mark}-{number}", folder / f"n{number}", plane.programs)
            node.folder.mkdir(parents=True)
            stack.callback(_remove, node)
            machines.make_namespace(stack, node.name)
            machines.plug(mark, node.name, node.address, "eth0")
            node.configure(plane)
            nodes.append(node)
        _route(nodes)
        for name in ("kube-controller-manager", "kube-scheduler"):
            words = [str(plane.programs / name), *_words_of(name, plane)]
            stack.enter_context(running(Program(words, plane.folder / f"{name}.log")))
        stack.enter_context(
            dns.answering(HOST, lambda name: others.get(name) or _find_service(plane, name))
        )
        cluster = Nodes(plane, nodes)
        for node in nodes:
            node.start()
        _load_pause(cluster)
        wait_until(lambda: _are_ready(cluster), "the nodes to be ready", START_S)
        yield cluster


def _route(nodes: list[Node]) -> None:
    """What an overlay network does elsewhere."""
    run("ip", "route", "replace", SERVICES, "via", nodes[0].address)
    for node in nodes:
        run("ip", "route", "replace", node.pods, "via", node.address)
        run(*machines.enter(node.name), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        run("ip", "-n", node.name, "route", "replace", "default", "via", HOST)
        for other in nodes:
            if other is not node:
                run("ip", "-n", node.name, "route", "replace", other.pods, "via", other.address)


def _words_of(name: str, plane: Cluster) -> list[str]:
    words = [f"--kubeconfig={plane.folder}/kubeconfig", "--leader-elect=false", "--secure-port=0"]
    if name == "kube-scheduler":
        return words
    return [
        *words,
        f"--service-account-private-key-file={plane.folder}/accounts.key",
        f"--root-ca-file={plane.folder}/certificates/apiserver.crt",
        "--allocate-node-cidrs=false",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
    ]


def _find_service(plane: Cluster, name: str) -> str:
    """The address of triton-bundle.served.svc.cluster.local."""
    service, space, *rest = (*name.split("."), "")
    if rest != ["svc", "cluster", "local", ""]:
        return ""
    command = ("get", "service", service, "--ignore-not-found", f"--namespace={space}")
    return plane.try_kubectl(*command, "--output=jsonpath={.spec.clusterIP}").stdout


def _load_pause(cluster: Nodes) -> None:
    text = 'FROM debian:bookworm-slim\nCMD ["sleep", "infinity"]\n'
    subprocess.run(
        ["docker", "build", "--quiet", "--tag", PAUSE, "-"],
        input=text.encode(),
        check=True,
        capture_output=True,
    )
    cluster.load(PAUSE)


def _are_ready(cluster: Nodes) -> bool:
    found = json.loads(cluster.plane.kubectl("get", "nodes", "--output=json"))["items"]
    ready = [
        condition["status"] == "True"
        for node in found
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    ]
    return len(ready) == len(cluster.nodes) and all(ready)


def _remove(node: Node) -> None:
    """Mounts end with the node's namespace."""
    node.kill()
    machines.remove_groups(node.name)
    with suppress(OSError):
        shutil.rmtree(node.folder)
