"""Docker engines on this machine that know nothing of each other: each in a network namespace of
its own, with its own data, joined by a bridge that stands in one too.

    with swarm_nodes.of(2, folder) as nodes:
        nodes[0].docker("swarm", "init", "--advertise-addr", nodes[0].address)

When the block ends, nothing of them is left.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.project import run, wait_until
from tests.surroundings import machines

# What the containers of the nodes use, and the nodes among themselves; nothing else on a machine of
# tests does.
NODES = "10.213.0"
HOST = f"{NODES}.254"
BRIDGES, POOLS, OVERLAYS = "10.214.{}.1/24", "10.215.{}.0/24", "10.216.0.0/16"
START_S = 60


@dataclass
class Node:
    number: int
    name: str
    folder: Path
    _engine: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        return f"{NODES}.{self.number}"

    @property
    def host(self) -> str:
        """For DOCKER_HOST."""
        return f"unix://{self.folder}/docker.sock"

    @property
    def inside(self) -> list[str]:
        """Before a command that is to run on this node."""
        return machines.enter(self.name)

    def docker(self, *words: str) -> str:
        return run("docker", "--host", self.host, *words).strip()

    def start(self) -> None:
        command = [
            *self.inside,
            *("unshare", "--mount", "--uts", "sh", "-c"),
            # There an engine keeps the networks of its containers.
            "mkdir -p /run/docker && mount -t tmpfs tmpfs /run/docker && "
            f'hostname node{self.number} && exec dockerd "$@"',
            *("dockerd", "--host", self.host, "--data-root", f"{self.folder}/data"),
            *("--exec-root", f"{self.folder}/run", "--pidfile", f"{self.folder}/pid"),
            *("--bip", BRIDGES.format(self.number), "--cgroup-parent", f"/{self.name}"),
            *("--default-address-pool", f"base={POOLS.format(self.number)},size=26"),
            *_name_store(),
        ]
        with (self.folder / "log").open("ab") as log:
            self._engine = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self.answers, f"the engine of {self.name} (log: {self.folder}/log)", START_S)

    def answers(self) -> bool:
        command = ["docker", "--host", self.host, "version"]
        return subprocess.run(command, capture_output=True).returncode == 0

    def kill(self) -> None:
        """As a machine that loses its power: the engine, and all that it runs."""
        machines.kill(self.folder)
        if self._engine:
            self._engine.wait()


@contextmanager
def of(count: int, folder: Path) -> Iterator[list[Node]]:
    mark = f"tb-swarm-{os.getpid()}"
    with ExitStack() as stack:
        # This machine too, which asks them.
        machines.make_bridge(stack, mark, HOST, f"tbs{os.getpid()}")
        nodes = []
        for number in range(1, count + 1):
            node = Node(number, f"{mark}-{number}", folder / f"node{number}")
            node.folder.mkdir(parents=True)
            stack.callback(_remove, node)
            machines.make_namespace(stack, node.name)
            machines.plug(mark, node.name, node.address, "eth0")
            node.start()
            nodes.append(node)
        yield nodes


def _name_store() -> list[str]:
    """As this machine's own engine keeps its images, which is what their ids depend on."""
    driver = run("docker", "info", "--format", "{{.Driver}}").strip()
    in_containerd = ["--feature", "containerd-snapshotter=true"]
    return in_containerd if driver == "overlayfs" else ["--storage-driver", driver]


def join(nodes: list[Node]) -> None:
    """The first is the manager."""
    first, *others = nodes
    words = ["--advertise-addr", first.address, "--listen-addr", first.address]
    first.docker("swarm", "init", *words, "--default-addr-pool", OVERLAYS)
    token = first.docker("swarm", "join-token", "--quiet", "worker")
    for node in others:
        words = ["--advertise-addr", node.address, "--listen-addr", node.address]
        node.docker("swarm", "join", "--token", token, *words, f"{first.address}:2377")


def _remove(node: Node) -> None:
    """What an engine that was killed has left too. Its mounts ended with its namespace."""
    if node.answers():
        leave = ["docker", "--host", node.host, "swarm", "leave", "--force"]
        subprocess.run(leave, capture_output=True)
    node.kill()
    machines.remove_groups(node.name)
    shutil.rmtree(node.folder, ignore_errors=True)
