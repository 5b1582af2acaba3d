"""`make cluster-up`, `rollout`, `rollback` and `scale` on two nodes of a real Kubernetes, while
clients ask through the Service: is a request lost, and does a bad version get any?

`-s` shows what was counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmark.rollouts import Load, clients
from bundle_client import __version__
from extensions.kubernetes import pods
from extensions.kubernetes.kustomization import SERVICE
from extensions.kubernetes.tests import nodes
from extensions.kubernetes.tests.cluster import Cluster, kubeconfig
from extensions.kubernetes.tests.nodes import Nodes
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, error_lines, wait_until

pytestmark = pytest.mark.rare

REGISTRY = "registry.example"
SPACE = "rolled"
CLAIM = "triton-bundle-models"
CLIENTS = 4
ENOUGH = 5000
OWN = {"FROM": "build/birds.onnx", "LABELS": "build/birds.txt"}
LABELS = [f"bird {number}" for number in range(10)]
PROGRAM = "own/model_repository/birds_postprocessing/1/model.py"
ASKED = 'tensor(request, "INPUT_0")'


@dataclass
class Rolled:
    project: Project
    nodes: Nodes

    def kubectl(self, *words: str, given: str = "") -> str:
        return self.nodes.plane.kubectl("--namespace", SPACE, *words, given=given)

    @contextmanager
    def asked(self, enough: int = ENOUGH) -> Iterator[Load]:
        """Through the Service, over HTTP and gRPC, until the block ends and so many have come."""
        address = self.kubectl("get", "service", SERVICE, "--output=jsonpath={.spec.clusterIP}")
        with clients(
            f"https://{address}:8000",
            f"grpcs://{address}:8001",
            CLIENTS,
            pause=0.02,
            api_key=self.project.admin_key,
            ca_file=str(self.project.path / "build" / "tls" / "cert.pem"),
            server_name=SERVICE,
        ) as load:
            wait_until(lambda: load.answered > 20, "answers before")
            yield load
            wait_until(lambda: load.answered > enough, "enough answers", 1800)
        print(f"\n{len(load.faults)} of {load.answered + len(load.faults)} requests failed")
        assert load.faults == []

    def pods(self) -> list[str]:
        """Those that are ready, and are not to end."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return [each["metadata"]["name"] for each in found if pods.is_ready(each)]

    def versions(self) -> set[str]:
        """Of the pods that are there and not to end: what marks them."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return {
            each["metadata"]["annotations"][pods.FINGERPRINT]
            for each in found
            if pods.FINGERPRINT in each["metadata"].get("annotations", {})
            and not pods.is_ending(each)
        }

    @contextmanager
    def another_program(self, then: str) -> Iterator[None]:
        file = self.project.path / PROGRAM
        before = file.read_text()
        assert ASKED in before
        file.write_text(before.replace(ASKED, f"_changed({ASKED})") + then)
        try:
            yield
        finally:
            file.write_text(before)


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolled]:
    nodes.require_node_programs()
    require_docker()
    folder = tmp_path_factory.mktemp("rolled")
    others = {"ARCH": "", "WEIGHTS": "", "SAMPLES": "", "CORES": "1", "START_TIMEOUT": "300"}
    cluster_settings = {"FLAVOUR": "kubernetes", "NAMESPACE": SPACE, "REGISTRY": REGISTRY}
    project = Project.copy(folder / "bundle", **others, **cluster_settings)
    (project.path / "build").mkdir(exist_ok=True)
    draw_network(project.path / "build" / "birds.onnx")
    labels = "".join(f"{label}\n" for label in LABELS)
    (project.path / "build" / "birds.txt").write_text(labels)
    claim = folder / "claim"
    claim.mkdir()
    claim.chmod(0o777)  # as fsGroup lets them write
    image = f"{REGISTRY}/triton-bundle-server:{__version__}"
    project.made("keys", "ADD=ann")
    refused = project.make("cluster-up", KUBECONFIG="/none")
    assert "kubectl knows no cluster" in error_lines(refused.stderr)[0]
    try:
        name = project.path.name
        build = ["docker", "compose", "--project-name", name, "--progress", "quiet", "build"]
        environment = project.environment()
        subprocess.run([*build, "server"], cwd=project.path, env=environment, check=True)
        with nodes.start(2, folder / "nodes") as cluster:
            plane = cluster.plane
            path = f"{plane.programs}:{os.environ['PATH']}"
            project.settings |= {"PATH": path, "KUBECONFIG": f"{plane.folder}/kubeconfig"}
            refused = project.make("cluster-up")
            assert f"no namespace {SPACE}" in error_lines(refused.stderr)[0]
            plane.make_namespace(SPACE)
            refused = project.make("cluster-up", KUBECONFIG=str(weak_user(plane, folder)))
            assert (
                error_lines(refused.stderr)[0]
                .partition("you may not ")[2]
                .startswith("get deployments, list deployments, create deployments")
            )
            refused = project.make("cluster-up")
            assert "no default storage class" in error_lines(refused.stderr)[0]
            plane.kubectl("apply", "--filename=-", given=volume(claim))
            refused = project.make("cluster-up", **OWN)
            line = error_lines(refused.stderr)[0]
            assert f"no pod comes up with the image {image}: " in line, refused.stderr
            assert plane.kubectl("--namespace", SPACE, "get", "deployments") == ""
            cluster.load(image)
            rolled = Rolled(project, cluster)
            project.made("cluster-up", "REPLICAS=2", **OWN)
            yield rolled
            project.made("down")
            assert not rolled.versions()
    finally:
        project.end()
        subprocess.run(["docker", "image", "rm", image], capture_output=True)


def weak_user(plane: Cluster, folder: Path) -> Path:
    """The kubeconfig of one who may only look at pods."""
    inside = ("--namespace", SPACE, "create")
    plane.kubectl(*inside, "serviceaccount", "weak")
    plane.kubectl(*inside, "role", "look", "--verb=get,list,watch", "--resource=pods")
    account = f"--serviceaccount={SPACE}:weak"
    plane.kubectl(*inside, "rolebinding", "look", "--role=look", account)
    token = plane.kubectl(*inside, "token", "weak").strip()
    (folder / "weak.kubeconfig").write_text(kubeconfig(plane.url, plane.folder, token))
    return folder / "weak.kubeconfig"


def volume(folder: Path) -> str:
    """One that both nodes see."""
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(folder)},
        "claimRef": {"namespace": SPACE, "name": CLAIM},
    }
    about = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"}}
    return json.dumps(about | {"spec": spec})


def publish(rolled: Rolled, **settings: str) -> str:
    said = rolled.project.made("publish", **settings)
    return said.partition("published: version ")[2].partition(":")[0]


def test_commands_speak_of_the_cluster(rolled: Rolled) -> None:
    status = rolled.project.made("status")
    assert "node1" in status and "node2" in status and status.count("running") == 2
    assert "triton-bundle-" in rolled.project.made("logs", "SINCE=1h")
    assert "is live" in rolled.project.made("history")


def test_a_rollout_and_a_rollback_cost_no_request(rolled: Rolled) -> None:
    before = rolled.versions()
    publish(rolled, MAX_MEGAPIXELS="40")
    with rolled.asked():
        assert "; 0 of " in rolled.project.made("rollout", MAX_P99_RATIO="100")
    assert len(rolled.versions()) == 1 and rolled.versions() != before
    with rolled.asked():
        assert "; 0 of " in rolled.project.made("rollback", MAX_P99_RATIO="100")
    assert len(rolled.versions()) == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_rollout_is_undone(rolled: Rolled, how: signal.Signals) -> None:
    """By itself, or by the next command where it could not."""
    before = rolled.versions()
    with rolled.asked(0):
        make = rolled.project.start_make("rollout", MAX_P99_RATIO="100")
        wait_until(lambda: len(rolled.versions()) == 2, "the first new pod")
        os.killpg(make.pid, how)
        said, _ = make.communicate()
        if how == signal.SIGINT:
            assert "still serves" in said
        else:
            rolled.project.made("cluster-up", "REPLICAS=2", **OWN)
    assert rolled.versions() == before
    kept = rolled.project.made("history")
    assert ("interrupted" if how == signal.SIGINT else "cut off") in kept


@pytest.mark.parametrize(
    ("then", "cause"),
    [
        ("\n\ndef _changed(scores):\n    raise OSError('no such disk')\n", "no such disk"),
        ("\n\ndef _changed(scores):\n    return -scores\n", "differ"),
        (
            "\n\ndef _changed(scores):\n    import time\n    time.sleep(1)\n    return scores\n",
            "MAX_P99_RATIO",
        ),
    ],
    ids=["errs", "answers otherwise", "slow"],
)
def test_a_bad_version_does_not_come_to_serve(rolled: Rolled, then: str, cause: str) -> None:
    before = rolled.versions()
    with rolled.another_program(then):
        number = publish(rolled)
    with rolled.asked(0):
        refused = rolled.project.make("rollout", VERSION=number)
    assert refused.returncode != 0 and cause in error_lines(refused.stderr)[0]
    assert rolled.versions() == before


def test_more_and_fewer_pods_cost_no_request(rolled: Rolled) -> None:
    with rolled.asked():
        for count in ("4", "1", "2"):
            rolled.project.made("scale", f"REPLICAS={count}")
            assert rolled.project.made("status").count("running") == int(count)


def test_a_pod_that_is_deleted_costs_no_request(rolled: Rolled) -> None:
    with rolled.asked():
        for name in rolled.pods():
            rolled.kubectl("delete", "pod", name)
            wait_until(lambda: len(rolled.pods()) == 2, "another pod")


def test_a_drained_node_costs_no_request(rolled: Rolled) -> None:
    with rolled.asked():
        rolled.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data")
        wait_until(lambda: len(rolled.pods()) == 2, "both pods on the other node")
    rolled.kubectl("uncordon", "node2")
