"""A control plane of Kubernetes on this machine: etcd and the real API server, on loopback ports of
their own, with their data in one folder.

    with cluster.start(folder) as cluster:
        cluster.kubectl("apply", "--server-side", "--kustomize", "deploy/kubernetes/overlays/cpu")

TEST_KUBERNETES names a folder with kube-apiserver and kubectl, which may be one program.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.project import free_ports, run, wait_until

PROGRAMS = os.environ.get("TEST_KUBERNETES")
START_S = 120
TOKEN = "of-the-tests"
PROXIES = "of-the-proxies"
SERVICES = "10.217.0.0/24"
# A namespace that takes no pod but such as the Pod Security Standard's strictest level allows.
RESTRICTED = """
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
"""


def require_programs() -> Path:
    if not PROGRAMS:
        pytest.skip("no Kubernetes here (TEST_KUBERNETES is not set)")
    if not shutil.which("etcd"):
        pytest.skip("no Kubernetes here: etcd is not installed (Debian: etcd-server)")
    return Path(PROGRAMS)


@dataclass
class Program:
    command: list[str]
    log: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(self.command, stdout=file, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """It has no time to say good-bye, of which an API server takes a minute."""
        if self._process:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Cluster:
    url: str
    programs: Path
    folder: Path
    server: Program

    def kubectl(self, *words: str, given: str = "") -> str:
        """What it printed; fails with what it said."""
        ran = self.try_kubectl(*words, given=given)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def try_kubectl(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        kubeconfig = f"--kubeconfig={self.folder}/kubeconfig"
        command = [str(self.programs / "kubectl"), kubeconfig, *words]
        return subprocess.run(command, input=given, capture_output=True, text=True)

    def make_namespace(self, name: str) -> None:
        self.kubectl("apply", "--filename", "-", given=RESTRICTED.format(name=name))
        # What a controller manager does, which does not run here.
        self.try_kubectl("--namespace", name, "create", "serviceaccount", "default")

    def is_ready(self) -> bool:
        return self.try_kubectl("get", "--raw", "/readyz").returncode == 0


@contextmanager
def start(folder: Path, address: str = "127.0.0.1", nodes: Sequence[str] = ()) -> Iterator[Cluster]:
    """For nodes of these names, which reach it by that address."""
    programs = require_programs()
    client, peer, secure = free_ports(3)
    folder.mkdir(parents=True)
    run("openssl", "genrsa", "-out", f"{folder}/accounts.key", "2048")
    people = [f'{TOKEN},tester,tester,"system:masters"']
    people += [f"{PROXIES},system:kube-proxy,proxies,"]
    people += [f'{name},system:node:{name},{name},"system:nodes"' for name in nodes]
    (folder / "tokens.csv").write_text("\n".join(people) + "\n")
    etcd = [
        "etcd",
        *(f"--data-dir={folder}/etcd", "--log-level=error"),
        *(f"--{side}-client-urls=http://127.0.0.1:{client}" for side in ("listen", "advertise")),
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
    ]
    server = [
        str(programs / "kube-apiserver"),
        *(f"--etcd-servers=http://127.0.0.1:{client}", f"--cert-dir={folder}/certificates"),
        *(f"--secure-port={secure}", f"--bind-address={address}"),
        "--service-account-issuer=https://cluster.local",
        f"--service-account-key-file={folder}/accounts.key",
        f"--service-account-signing-key-file={folder}/accounts.key",
        *(f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=Node,RBAC"),
        f"--service-cluster-ip-range={SERVICES}",
        "--kubelet-preferred-address-types=InternalIP",
    ]
    url = f"https://{address}:{secure}"
    (folder / "kubeconfig").write_text(kubeconfig(url, folder, TOKEN))
    cluster = Cluster(url, programs, folder, Program(server, folder / "server.log"))
    with running(Program(etcd, folder / "etcd.log")), running(cluster.server):
        wait_until(cluster.is_ready, "the API server to be ready", START_S)
        yield cluster


@contextmanager
def running(program: Program) -> Iterator[None]:
    program.start()
    try:
        yield
    finally:
        program.kill()


def kubeconfig(url: str, folder: Path, token: str) -> str:
    certificate = folder / "certificates" / "apiserver.crt"
    return f"""
apiVersion: v1
kind: Config
current-context: tests
clusters: [{{name: tests, cluster: {{server: "{url}", certificate-authority: {certificate}}}}}]
users: [{{name: tests, user: {{token: {token}}}}}]
contexts: [{{name: tests, context: {{cluster: tests, user: tests}}}}]
"""
