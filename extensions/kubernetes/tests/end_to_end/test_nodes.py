"""Pods on two nodes of a real Kubernetes, which serve somebody's own network that a job took in,
and what becomes of requests when some of it goes, comes or changes.

`-s` shows what was measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.rollouts import Load, clients
from bundle_client import Client, __version__
from extensions.kubernetes.kustomization import SERVICE
from extensions.kubernetes.tests import nodes
from extensions.kubernetes.tests.nodes import Node, Nodes
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, picture, run, wait_until

pytestmark = pytest.mark.rare

REGISTRY = "registry.example"
SPACE = "served"
CLAIM = "triton-bundle-models"
HELM = os.environ.get("TEST_HELM")
BUILD = "triton-bundle-build"
REFERENCES = "/state/references.json"
CLIENTS = 4
LABELS = [f"bird {number}" for number in range(10)]
# More than a kubelet and its probes take on a busy machine; it only ends a hang.
PATIENCE = "600s"


@dataclass
class Served:
    project: Project
    nodes: Nodes

    def kubectl(self, *words: str, given: str = "") -> str:
        return self.nodes.plane.kubectl("--namespace", SPACE, *words, given=given)

    def apply(self) -> None:
        self.project.made("kubernetes", f"PUSH={REGISTRY}")
        folder = self.project.path / "build" / "kubernetes"
        self.kubectl("apply", "--server-side", "--kustomize", str(folder))

    def run_job(self) -> None:
        folder = self.project.path / "build" / "kubernetes" / "job"
        self.kubectl("delete", "job", BUILD, "--ignore-not-found")
        self.kubectl("apply", "--server-side", "--kustomize", str(folder))
        self.kubectl("wait", "--for=condition=complete", f"--timeout={PATIENCE}", f"job/{BUILD}")

    def wait(self) -> None:
        """Until as many pods as there should be run what was asked for, and are ready."""
        self.kubectl("rollout", "status", f"deployment/{SERVICE}", f"--timeout={PATIENCE}")

    def set_number(self, count: int) -> None:
        """Without the autoscaler, which has no figures here."""
        self.kubectl("delete", "hpa", SERVICE, "--ignore-not-found")
        self.kubectl("scale", f"deployment/{SERVICE}", f"--replicas={count}")
        wait_until(lambda: len(self.pods()) == count, f"{count} pods")

    def pods(self, node: Node | None = None) -> list[str]:
        """Those that are ready, and are not to end."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return [
            each["metadata"]["name"]
            for each in found
            if is_ready(each) and node in (None, self._node_of(each))
        ]

    def _node_of(self, pod: dict[str, Any]) -> Node | None:
        by_title = {node.title: node for node in self.nodes.nodes}
        return by_title.get(pod["spec"].get("nodeName"))

    def start_count(self) -> int:
        """How often containers were started again."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return sum(
            status["restartCount"]
            for each in found
            for status in each["status"].get("containerStatuses", ())
        )

    @property
    def address(self) -> str:
        command = ["get", "service", SERVICE, "--output=jsonpath={.spec.clusterIP}"]
        return self.kubectl(*command)

    @property
    def certificate(self) -> Path:
        return self.project.path / "build" / "kubernetes" / "secrets" / "cert.pem"

    def client(self, key: str = "", **how: Any) -> Client:
        key = key or self.project.admin_key
        return Client(f"https://{self.address}:8000", api_key=key, **self._trusting, **how)

    @property
    def _trusting(self) -> dict[str, Any]:
        return {"ca_file": str(self.certificate), "server_name": SERVICE}

    @contextmanager
    def asked(self, count: int = CLIENTS) -> Iterator[Load]:
        """Through the Service, over HTTP and gRPC, until the block ends."""
        address = self.address
        with clients(
            f"https://{address}:8000",
            f"grpcs://{address}:8001",
            count,
            pause=0.02,
            api_key=self.project.admin_key,
            **self._trusting,
        ) as load:
            wait_until(lambda: load.answered > 20, "answers before")
            yield load
            enough = load.answered + 20
            wait_until(lambda: load.answered > enough, "answers after")
        print(f"\n{len(load.faults)} of {load.answered + len(load.faults)} requests failed")


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    nodes.require_node_programs()
    require_docker()
    folder = tmp_path_factory.mktemp("pods")
    network = {"FROM": "build/birds.onnx", "LABELS": "build/birds.txt"}
    others = {"ARCH": "", "WEIGHTS": "", "STEPS": "", "CORES": "1"}
    project = Project.copy(folder / "bundle", FLAVOUR="local", **network, **others)
    claim = folder / "claim"
    claim.mkdir()
    claim.chmod(0o777)  # as fsGroup lets them write
    draw_network(claim / "birds.onnx")
    (claim / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    project.made("keys", "ADD=ann")
    try:
        with build_images(project) as images, nodes.start(2, folder / "nodes") as cluster:
            for image in images:
                cluster.load(image)
            cluster.plane.make_namespace(SPACE)
            served = Served(project, cluster)
            cluster.plane.kubectl("apply", "--filename=-", given=volume(claim))
            served.apply()
            # Pods wait for what the job makes.
            served.run_job()
            served.run_job()
            began = time.monotonic()
            served.set_number(2)
            served.wait()
            print(f"\ntwo pods ready after {time.monotonic() - began:.0f} s")
            yield served
    finally:
        project.end()


@contextmanager
def build_images(project: Project) -> Iterator[list[str]]:
    """By the names that the cluster's objects have for them."""
    name, services = project.path.name, ("server", "layout")
    command = ["docker", "compose", "--project-name", name, "--progress", "quiet", "build"]
    environment = project.environment()
    subprocess.run([*command, *services], cwd=project.path, env=environment, check=True)
    images = [f"{REGISTRY}/triton-bundle-{service}:{__version__}" for service in services]
    for service, image in zip(services, images, strict=True):
        subprocess.run(["docker", "tag", f"{name}-{service}", image], check=True)
    yield images
    for made in (*images, *(f"{name}-{service}" for service in services)):
        subprocess.run(["docker", "image", "rm", made], capture_output=True)


def volume(folder: Path) -> str:
    """One that both nodes see."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "models"},
            "spec": {
                "capacity": {"storage": "5Gi"},
                "accessModes": ["ReadWriteMany"],
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": SPACE, "name": CLAIM},
            },
        }
    )


def test_pods_answer_on_both_nodes(served: Served) -> None:
    on = {node.title: served.pods(node) for node in served.nodes.nodes}
    assert all(on.values()), served.kubectl("get", "pods", "--output=wide")
    with served.client() as client:
        assert client.classify(picture()).labels[0].label in LABELS


def test_the_job_does_again_only_what_has_changed(served: Served) -> None:
    said = served.kubectl("logs", f"job/{BUILD}", "--all-containers")
    assert "nothing to lay out" in said, said


def test_a_pod_that_is_deleted_costs_no_request(served: Served) -> None:
    with served.asked() as load:
        for pod in served.pods():
            served.kubectl("delete", "pod", pod)
            served.wait()
    assert load.faults == []


def test_a_new_rollout_costs_no_request(served: Served) -> None:
    before = served.pods()
    with served.asked() as load:
        served.kubectl("rollout", "restart", f"deployment/{SERVICE}")
        served.wait()
    assert load.faults == [] and not {*before} & {*served.pods()}


def test_more_and_fewer_pods_cost_no_request(served: Served) -> None:
    with served.asked() as load:
        for count in (3, 1, 2):
            served.set_number(count)
            served.wait()
    assert load.faults == []


def test_a_drained_node_costs_no_request(served: Served) -> None:
    node = served.nodes.nodes[1]
    with served.asked() as load:
        served.kubectl("drain", node.title, "--ignore-daemonsets", "--delete-emptydir-data")
        served.wait()
        assert not served.pods(node)
        served.kubectl("uncordon", node.title)
        served.kubectl("delete", "pod", served.pods()[0])
        wait_until(lambda: served.pods(node), "a pod on it again")
    assert load.faults == []


def test_a_server_that_ends_is_started_again_in_its_pod(served: Served) -> None:
    """Until the cluster has seen it, the Service leads to it: nobody but a gateway asks another."""
    before, count = {*served.pods()}, served.start_count()
    pod = served.pods()[0]
    read = ["exec", pod, "--", "cat", REFERENCES]

    def is_kept() -> bool:
        return served.nodes.plane.try_kubectl("--namespace", SPACE, *read).returncode == 0

    with served.asked() as load:
        wait_until(is_kept, "what answers are compared with")
        kept = served.kubectl(*read)
        served.kubectl("exec", pod, "--", "sh", "-c", "kill -TERM 1")
        wait_until(lambda: served.start_count() == count + 1, "its container to start again")
        wait_until(lambda: {*served.pods()} == before, "both to be ready")
        assert served.kubectl(*read) == kept
    assert all(fault.startswith(served.address) for fault in load.faults), (
        "not reached, and no more"
    )


def test_a_killed_kubelet_costs_no_request(served: Served) -> None:
    node = served.nodes.nodes[1]
    with served.asked() as load:
        node.stop_part("kubelet")
        wait_until(partial(is_unknown, served, node), "the cluster to miss it")
        node.start_part("kubelet")
        wait_until(lambda: len(served.pods()) == 2, "both pods to be ready")
    assert load.faults == []


def is_unknown(served: Served, node: Node) -> bool:
    form = "--output=jsonpath={.status.conditions[?(@.type=='Ready')].status}"
    return served.kubectl("get", "node", node.title, form) == "Unknown"


def test_a_new_key_is_taken_without_a_new_pod(served: Served) -> None:
    words = ["get", "pods", f"--selector=app.kubernetes.io/name={SERVICE}", "--output=name"]
    before, count = served.kubectl(*words), served.start_count()
    key = served.project.made("keys", "ADD=ben").split("Bearer ")[1].split()[0]
    served.apply()

    def answers() -> bool:
        with suppress(Exception), served.client(key) as client:
            return bool(client.classify(picture()).labels)
        return False

    wait_until(answers, "the kubelets' next look at secrets")
    assert served.kubectl(*words) == before and served.start_count() == count


def test_an_engine_that_loses_its_power_is_replaced(served: Served) -> None:
    """The Service sends requests to its pods until the cluster misses its node."""
    lost = served.nodes.nodes[1]
    assert served.pods(lost)
    with served.asked(4 * CLIENTS) as load:
        lost.kill()
        began = time.monotonic()
        wait_until(partial(is_unknown, served, lost), "the cluster to miss it")
        wait_until(lambda: not served.pods(lost), "the Service to leave it out")
        print(f"\na node without power, missed after {time.monotonic() - began:.0f} s")
    print(f"of them, each of: {sorted({*load.faults})}")
    lost.start()
    wait_until(lambda: not is_unknown(served, lost), "the node")
    served.wait()


def test_a_release_of_helm_serves_too(served: Served) -> None:
    if not HELM:
        pytest.skip("no Helm here (TEST_HELM is not set)")
    kinds = "deployment,service,networkpolicy,poddisruptionbudget,horizontalpodautoscaler"
    served.kubectl("delete", kinds, "--all")
    folder = served.project.path / "build" / "kubernetes"
    kubeconfig = f"--kubeconfig={served.nodes.plane.folder}/kubeconfig"
    command = [HELM, "--namespace", SPACE, kubeconfig]
    chart = str(served.project.path / "deploy" / "kubernetes")
    given = [f"--values={folder}/values.yaml", "--set=storage.create=false,autoscaling.min=1"]
    given += ["--wait", f"--timeout={PATIENCE}"]
    said = run(*command, "install", "triton-bundle", chart, *given)
    assert "helm --namespace served test triton-bundle" in said
    with served.client() as client:
        assert client.classify(picture()).labels[0].label in LABELS
    # `helm test` starts this pod; here it is told the Service's address, for there is no DNS.
    pod = yaml.safe_load(run(*command, "get", "hooks", "triton-bundle"))
    aliases = [{"ip": served.address, "hostnames": [SERVICE]}]
    pod["spec"]["hostAliases"] = aliases
    served.kubectl("create", "--filename=-", given=json.dumps(pod))
    ended = "--for=jsonpath={.status.phase}=Succeeded"
    served.kubectl("wait", ended, f"--timeout={PATIENCE}", f"pod/{pod['metadata']['name']}")
    run(*command, "uninstall", "triton-bundle", "--wait")
