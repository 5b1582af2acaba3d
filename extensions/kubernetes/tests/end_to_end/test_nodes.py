"""Pods on two nodes of a real Kubernetes, which serve somebody's own network that a job took in,
and what becomes of requests when some of it goes, comes or changes.

`-s` shows what was measured.
"""

import json
import os
import re
import shutil
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
from bundle_client import Client, ClientError, __version__
from extensions.kubernetes import pods
from extensions.kubernetes.pods import SERVICE
from extensions.kubernetes.preflight import CLAIM
from extensions.kubernetes.tests import keda, metrics, nodes
from extensions.kubernetes.tests.cluster import Program, running
from extensions.kubernetes.tests.nodes import HOST, Node, Nodes
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import ROOT, Project, free_ports, picture, run, wait_until

pytestmark = pytest.mark.rare

REGISTRY = "registry.example"
SPACE = "served"
HELM = os.environ.get("TEST_HELM")
BUILD = "triton-bundle-build"
REFERENCES = "/state/references.json"
CLIENTS = 4
IN_QUEUE = 40
LABELS = [f"bird {number}" for number in range(10)]
# More than a kubelet and its probes take on a busy machine; it only ends a hang.
PATIENCE = "600s"
# More than a pod may have, in small parts.
TAKE_MEMORY = """
echo 1000 >/proc/1/oom_score_adj
for each in $(seq 24); do python3 -c 'import time; x = bytes(1) * (1 << 28); time.sleep(60)' & done
wait
"""


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
            if pods.is_ready(each) and node in (None, self._node_of(each))
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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    nodes.require_node_programs()
    require_docker()
    folder = tmp_path_factory.mktemp("pods")
    network = {"FROM": "build/birds.onnx", "LABELS": "build/birds.txt"}
    others = {"ARCH": "", "WEIGHTS": "", "STEPS": "", "CORES": "1"}
    project = Project.copy(folder / "bundle", FLAVOUR="local", **network, **others)
    claim = folder / "claim"
    project.made("keys", "ADD=ann")
    try:
        with build_images(project) as images, nodes.start(2, folder / "nodes") as cluster:
            for image in images:
                cluster.load(image)
            cluster.plane.make_namespace(SPACE)
            served = Served(project, cluster)
            nodes.make_volume(cluster.plane, claim, SPACE, CLAIM)
            draw_network(claim / "birds.onnx")
            (claim / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
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


@pytest.fixture(autouse=True)
def all_are_ready(served: Served) -> None:
    """A busy machine's probes may have passed over what is ready, after the test before."""
    served.wait()


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

    def read(pod: str) -> str:
        words = ["--namespace", SPACE, "exec", pod, "--", "cat", REFERENCES]
        return served.nodes.plane.try_kubectl(*words).stdout

    with served.asked() as load:
        # Of a pod that is asked: all clients may keep connections to one of them.
        wait_until(lambda: any(map(read, before)), "what answers are compared with")
        pod = next(filter(read, before))
        kept = read(pod)
        served.kubectl("exec", pod, "--", "sh", "-c", "kill -TERM 1")
        wait_until(lambda: served.start_count() == count + 1, "its container to start again")
        wait_until(lambda: {*served.pods()} == before, "both to be ready")
        assert read(pod) == kept
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


def test_one_pod_at_a_time_may_be_evicted(served: Served) -> None:
    """As a drain asks; a budget of disruptions stands before it."""
    first, second = served.pods()
    with served.asked() as load:
        assert evict(served, first) == ""
        assert "disruption budget" in evict(served, second)
        wait_until(lambda: evict(served, second) == "", "another pod in its place")
        wait_until(lambda: not {first, second} & {*served.pods()}, "both to go")
        served.wait()
    assert load.faults == []


def evict(served: Served, pod: str) -> str:
    """Why not."""
    about = {"name": pod, "namespace": SPACE}
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    path = f"/api/v1/namespaces/{SPACE}/pods/{pod}/eviction"
    command = ["create", f"--raw={path}", "--filename=-"]
    return served.nodes.plane.try_kubectl(*command, given=json.dumps(asked)).stderr


def test_a_pod_without_memory_is_started_again(served: Served) -> None:
    """The kernel takes the server first, as it is told; else it takes who asks for too much."""
    before, count = {*served.pods()}, served.start_count()
    pod = served.pods()[0]
    with served.asked() as load:
        command = ("exec", pod, "--", "sh", "-c", TAKE_MEMORY)
        served.nodes.plane.try_kubectl("--namespace", SPACE, *command)
        wait_until(lambda: served.start_count() == count + 1, "its container to start again")
        wait_until(lambda: {*served.pods()} == before, "both to be ready")
    form = "--output=jsonpath={.status.containerStatuses[0].lastState.terminated.reason}"
    assert served.kubectl("get", "pod", pod, form) == "OOMKilled"
    # Of each client what was in flight, and one that reached nobody.
    assert len(load.faults) <= 2 * CLIENTS, load.faults


def test_the_autoscaler_follows_the_processors(served: Served) -> None:
    """A stand-in says how busy they are."""
    served.apply()  # with the autoscaler again
    at_once = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
    patch = {"spec": {"maxReplicas": 3, **at_once}}
    served.kubectl("patch", "hpa", SERVICE, "--type=merge", f"--patch={json.dumps(patch)}")
    with (
        metrics.reporting(served.nodes.plane, HOST, SPACE) as usage,
        served.asked() as load,
    ):
        usage.millicores = 1000  # of the one that each asks for, and 70% is aimed at
        wait_until(lambda: len(served.pods()) == 3, "a third pod")
        usage.millicores = 10
        wait_until(lambda: len(served.pods()) == 2, "two pods again")
    assert load.faults == []


def test_no_pods_and_back(served: Served) -> None:
    served.set_number(0)
    for _ in range(3):
        began = time.monotonic()
        served.set_number(1)
        print(f"\nfrom no pod to one that is ready: {time.monotonic() - began:.1f} s")
        with served.client() as client:
            assert client.classify(picture()).labels[0].label in LABELS
        print(f"to its first answer: {time.monotonic() - began:.1f} s")
        served.set_number(0)
    served.set_number(2)


def test_a_queue_brings_the_first_pod(served: Served, tmp_path: Path) -> None:
    """By what README shows, of a list in Redis."""
    served.set_number(0)
    with keda.running(served.nodes.plane, HOST, tmp_path / "keda"), queue(tmp_path) as asked:
        about = shown_object()
        about["spec"] |= {"cooldownPeriod": 10, "pollingInterval": 5}
        about["spec"]["triggers"][0]["metadata"]["address"] = f"{HOST}:{asked[-1]}"
        run(*asked, "rpush", "pictures", *map(str, range(IN_QUEUE)))
        assert served.pods() == []
        with scaled(served, about):
            while run(*asked, "lpop", "pictures").strip():
                assert ask_until_answered(served) in LABELS
            wait_until(lambda: served.pods() == [], "no pods again")
            run(*asked, "rpush", "pictures", "again")
            wait_until(lambda: served.pods() != [], "a pod again")
    served.set_number(2)


@contextmanager
def queue(folder: Path) -> Iterator[list[str]]:
    """Before what it is asked."""
    program = shutil.which("redis-server")
    if not program:
        pytest.skip("no Redis here")
    (port,) = free_ports(1)
    words = ["--bind", HOST, "--port", str(port), "--protected-mode", "no", "--save", ""]
    asked = ["redis-cli", "-h", HOST, "-p", str(port)]
    with running(Program([program, *words], folder / "redis.log")):
        ping = [*asked, "ping"]
        wait_until(lambda: not subprocess.run(ping, capture_output=True).returncode, "Redis")
        yield asked


def shown_object() -> Any:
    text = (ROOT / "extensions" / "kubernetes" / "README.md").read_text()
    block = re.search(r"^    apiVersion: keda.*\n(?:    .*\n)+", text, re.MULTILINE)
    assert block
    return yaml.safe_load(block[0])


@contextmanager
def scaled(served: Served, about: Any) -> Iterator[None]:
    served.kubectl("apply", "--filename=-", given=json.dumps(about))
    try:
        yield
    finally:
        served.kubectl("delete", "scaledobject", SERVICE)


def ask_until_answered(served: Served) -> str:
    while True:
        with served.client() as client, suppress(ClientError, OSError):
            return client.classify(picture()).labels[0].label
        time.sleep(0.5)


def test_requests_in_flight_bring_more_pods(served: Served, tmp_path: Path) -> None:
    """By the component `keda`, and what a real Prometheus reads in the pods."""
    served.set_number(2)
    served.wait()
    scaler = keda.running(served.nodes.plane, HOST, tmp_path / "keda")
    with scaler, prometheus(served, tmp_path) as url:
        about = built_component(served, tmp_path)
        spec = about["spec"]
        spec |= {"maxReplicaCount": 3, "pollingInterval": 5}
        at_once = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
        spec["advanced"] = {"horizontalPodAutoscalerConfig": at_once}
        spec["triggers"][0]["metadata"]["serverAddress"] = url
        with scaled(served, about):
            with served.asked(8 * CLIENTS) as load:
                wait_until(lambda: len(served.pods()) == 3, "a third pod")
            wait_until(lambda: len(served.pods()) == 2, "two pods again")
    assert load.faults == []


def built_component(served: Served, folder: Path) -> Any:
    (folder / "bundle").symlink_to(served.project.path)
    parts = {
        "resources": ["bundle/build/kubernetes"],
        "components": ["bundle/deploy/kubernetes/components/keda"],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    made = yaml.safe_load_all(served.kubectl("kustomize", str(folder)))
    (found,) = (each for each in made if each["kind"] == "ScaledObject")
    return found


@contextmanager
def prometheus(served: Served, folder: Path) -> Iterator[str]:
    """It finds the pods by themselves, not by their Service as the operator's: Debian's cannot."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no Prometheus here")
    found = json.loads(served.kubectl("get", "pods", "--output=json"))["items"]
    job = {
        "job_name": "pods",
        "scrape_interval": "5s",
        "scheme": "https",
        "authorization": {"credentials": served.project.admin_key},
        "tls_config": {"ca_file": str(served.certificate), "server_name": SERVICE},
        "static_configs": [
            {
                "targets": [f"{each['status']['podIP']}:8002" for each in found],
                "labels": {"service": SERVICE},
            }
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    (port,) = free_ports(1)
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with running(Program([program, *words], folder / "prometheus.log")):
        yield f"http://127.0.0.1:{port}"


def test_a_release_of_helm_serves_too(served: Served) -> None:
    if not HELM:
        pytest.skip("no Helm here (TEST_HELM is not set)")
    kinds = "deployment,service,networkpolicy,poddisruptionbudget,horizontalpodautoscaler"
    served.kubectl("delete", kinds, "--all")
    folder = served.project.path / "build" / "kubernetes"
    chart = str(served.project.path / "deploy" / "kubernetes")
    given = ["triton-bundle", chart, f"--values={folder}/values.yaml", "--wait"]
    given += ["--set=storage.create=false,autoscaling.enabled=false", f"--timeout={PATIENCE}"]
    said = run_helm(served, "install", *given)
    assert f"helm --namespace {SPACE} test triton-bundle" in said
    with served.client() as client:
        assert client.classify(picture()).labels[0].label in LABELS
    said = run_helm(served, "test", "triton-bundle", f"--timeout={PATIENCE}")
    assert "Phase:          Succeeded" in said
    before = {*served.pods()}
    with served.asked() as load:
        run_helm(served, "upgrade", *given, "--set-string=settings.MAX_IN_FLIGHT=512")
        upgraded = {*served.pods()}
        run_helm(served, "rollback", "triton-bundle", "--wait", f"--timeout={PATIENCE}")
    assert load.faults == []
    assert not before & upgraded and not upgraded & {*served.pods()}
    run_helm(served, "uninstall", "triton-bundle", "--wait")
    assert served.kubectl("get", kinds, "--output=name") == ""


def run_helm(served: Served, *words: str) -> str:
    kubeconfig = f"--kubeconfig={served.nodes.plane.folder}/kubeconfig"
    return run(str(HELM), "--namespace", SPACE, kubeconfig, *words)
