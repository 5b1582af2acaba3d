"""`make cluster-up`, `rollout`, `rollback` and `scale` on two nodes of a real Kubernetes, while
clients ask through the Service: is a request lost, and does a bad version get any?

`-s` shows what was counted.
"""

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from benchmark.rollouts import Load, clients
from bundle_client import __version__
from extensions.kubernetes import pods
from extensions.kubernetes.pods import SERVICE
from extensions.kubernetes.preflight import CLAIM
from extensions.kubernetes.tests import nodes
from extensions.kubernetes.tests.cluster import Cluster, kubeconfig
from extensions.kubernetes.tests.nodes import Nodes
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, error_lines, free_ports, picture, wait_until
from tests.sessions import asked_by_sessions, list_chosen
from tests.surroundings import aws_roles
from tests.surroundings.aws_roles import BUCKET, GET, LIST, REGION, STS

pytestmark = pytest.mark.rare

REGISTRY = "registry.example"
SPACE = "rolled"
CLIENTS = 4
ENOUGH = 5000
OWN = {"FROM": "build/birds.onnx", "LABELS": "build/birds.txt"}
LABELS = [f"bird {number}" for number in range(10)]
PROGRAM = "own/model_repository/birds_postprocessing/1/model.py"
ASKED = 'tensor(request, "INPUT_0")'
CHANGED = """

import itertools, os, time

IN_A_POD, COUNT = os.path.isdir("/run/proofs"), itertools.count()


def _changed(scores):
"""
ERRS_LATER = """
    if IN_A_POD and next(COUNT) > 40:
        raise OSError('no such disk')
    return scores
"""


POLICY = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
# A rule that lets pass what is asked for with --dry-run.
HALF_WAY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: half-way}
spec:
  matchConstraints:
    resourceRules:
      - apiGroups: [networking.k8s.io]
        apiVersions: ["*"]
        operations: [CREATE]
        resources: [networkpolicies]
  validations: [{expression: "has(request.dryRun) && request.dryRun", message: not here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: half-way}
spec: {policyName: half-way, validationActions: [Deny]}
"""


@dataclass
class Rolled:
    project: Project
    nodes: Nodes

    def kubectl(self, *words: str, given: str = "") -> str:
        return self.nodes.plane.kubectl("--namespace", SPACE, *words, given=given)

    @contextmanager
    def asked(self, enough: int = ENOUGH) -> Iterator[Load]:
        """Until the block ends and so many answers have come; none may be missing."""
        with self.load() as load:
            yield load
            wait_until(lambda: load.answered > enough, "enough answers", 1800)
        print(f"\n{len(load.faults)} of {load.answered + len(load.faults)} requests failed")
        assert load.faults == []

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Through the Service, over HTTP and gRPC, until the block ends."""
        with clients(
            f"https://{self.service}:8000",
            f"grpcs://{self.service}:8001",
            CLIENTS,
            pause=0.02,
            api_key=self.project.admin_key,
            ca_file=str(self.project.path / "build" / "tls" / "cert.pem"),
            server_name=SERVICE,
        ) as load:
            wait_until(lambda: load.answered > 20, "answers before")
            yield load

    def connect(self) -> http.client.HTTPSConnection:
        """Through the Service, to any pod."""
        trusted = ssl.create_default_context(cafile=str(self.project.path / "build/tls/cert.pem"))
        trusted.check_hostname = False
        return http.client.HTTPSConnection(self.service, 8000, timeout=60, context=trusted)

    @cached_property
    def service(self) -> str:
        return self.kubectl("get", "service", SERVICE, "--output=jsonpath={.spec.clusterIP}")

    def review(self, token: str) -> str:
        """Whose it is, for AWS; "" if it is none."""
        about = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        asked = about | {"spec": {"token": token, "audiences": ["sts.amazonaws.com"]}}
        form = "--output=jsonpath={.status.user.username}"
        return self.kubectl("create", "--filename=-", form, given=json.dumps(asked))

    def list_applied(self) -> str:
        """But for the claim."""
        kinds = "deployments,services,networkpolicies,poddisruptionbudgets,hpa,secrets,pods"
        return self.kubectl("get", kinds, "--output=name")

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
        file.write_text(before.replace(ASKED, f"_changed({ASKED})") + CHANGED + then + "\n")
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
    image = f"{REGISTRY}/triton-bundle-server:{__version__}"
    project.made("keys", "ADD=ann")
    refused = project.make("cluster-up", KUBECONFIG="/none")
    assert "kubectl knows no cluster" in error_lines(refused.stderr)[0]
    try:
        name = project.path.name
        build = ["docker", "compose", "--project-name", name, "--progress", "quiet", "build"]
        environment = project.environment()
        subprocess.run([*build, "server"], cwd=project.path, env=environment, check=True)
        with nodes.start(2, folder / "nodes", {STS: nodes.HOST}) as cluster:
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
            nodes.make_volume(plane, folder / "claim", SPACE, CLAIM)
            refused = project.make("cluster-up", **OWN)
            line = error_lines(refused.stderr)[0]
            assert f"no pod comes up with the image {image}: " in line, refused.stderr
            assert plane.kubectl("--namespace", SPACE, "get", "deployments") == ""
            cluster.load(image)
            rolled = Rolled(project, cluster)
            refused_by_quota(rolled)
            refused_half_way(rolled)
            make_claim(rolled, folder / "larger")
            project.made("cluster-up", "REPLICAS=2", **OWN)
            yield rolled
            project.made("down")
            assert not rolled.versions()
    finally:
        project.make("s3-down")
        project.end()
        subprocess.run(["docker", "image", "rm", image], capture_output=True)


def refused_by_quota(rolled: Rolled) -> None:
    """Pods keep to the strictest level of Pod Security; here are other rules of a namespace."""
    rolled.kubectl("create", "quota", "small", "--hard=limits.memory=1Gi")
    form = "--output=jsonpath={.status.hard}"
    wait_until(lambda: rolled.kubectl("get", "quota", "small", form), "the quota to count")
    refused = rolled.project.make("cluster-up", **OWN)
    line = error_lines(refused.stderr)[0]
    assert f"the namespace {SPACE} takes no such pod: " in line and "exceeded quota" in line
    rolled.kubectl("delete", "quota", "small")
    assert not rolled.list_applied()


def refused_half_way(rolled: Rolled) -> None:
    rolled.nodes.plane.kubectl("apply", "--filename=-", given=HALF_WAY)
    # Until the server knows the rule, it takes what it will refuse.
    given = json.dumps({**POLICY, "metadata": {"name": "any"}, "spec": {"podSelector": {}}})

    def is_refused() -> bool:
        said = rolled.nodes.plane.try_kubectl("apply", "--filename=-", given=given).stderr
        rolled.nodes.plane.kubectl("delete", "--ignore-not-found", "--filename=-", given=given)
        return "not here" in said

    wait_until(is_refused, "the rule")
    refused = rolled.project.make("cluster-up", "REPLICAS=2", **OWN)
    assert "not here" in error_lines(refused.stderr)[0], refused.stderr
    assert "removing what had been applied" in refused.stdout + refused.stderr
    wait_until(lambda: not rolled.list_applied(), "the pod that filled the claim to end")
    rolled.nodes.plane.kubectl("delete", "--filename=-", given=HALF_WAY)


def make_claim(rolled: Rolled, folder: Path) -> None:
    """A larger one than ours, in its place."""
    rolled.kubectl("delete", "pvc", CLAIM)
    rolled.kubectl("delete", "pv", "models")
    nodes.make_volume(rolled.nodes.plane, folder, SPACE, CLAIM)
    about = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}}
    size = {"requests": {"storage": "6Gi"}}
    about |= {"spec": {"accessModes": ["ReadWriteMany"], "resources": size}}
    rolled.kubectl("apply", "--filename=-", given=json.dumps(about))


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


def publish(rolled: Rolled, **settings: str) -> str:
    said = rolled.project.made("publish", **settings)
    return said.partition("published: version ")[2].partition(":")[0]


def test_commands_speak_of_the_cluster(rolled: Rolled) -> None:
    status = rolled.project.made("status")
    assert "node1" in status and "node2" in status and status.count("running") == 2
    assert "triton-bundle-" in rolled.project.made("logs", "SINCE=1h")
    assert "is live" in rolled.project.made("history")


def test_commands_go_where_it_runs_and_nowhere_else(rolled: Rolled) -> None:
    before = {*rolled.pods()}
    for command in ("status", "scale", "rollout", "cluster-up", "down"):
        refused = rolled.project.make(command, REPLICAS="1", NAMESPACE="other")
        (line,) = error_lines(refused.stderr)
        assert f"servers run with NAMESPACE={SPACE}, and NAMESPACE=other is given" in line
    (line,) = error_lines(rolled.project.make("scale", "REPLICAS=500").stderr)
    assert "REPLICAS=500, and the cluster has 2 nodes with room for" in line
    namespace = rolled.project.settings.pop("NAMESPACE")
    assert "node1" in rolled.project.made("status"), "it is known"
    rolled.project.settings["NAMESPACE"] = namespace
    assert {*rolled.pods()} == before


def test_status_counts_what_all_pods_answered(rolled: Rolled) -> None:
    before = count_answered(rolled)
    with rolled.load() as load:
        wait_until(lambda: load.answered > 200, "answers of both pods")
    wait_until(lambda: count_answered(rolled) - before == load.answered, "all of them")


def count_answered(rolled: Rolled) -> int:
    lines = map(json.loads, rolled.project.made("status", "JSON=1").splitlines())
    (row,) = (each for each in lines if str(each.get("model")).endswith(", main"))
    return int(row["answered"])


def test_a_rollout_and_a_rollback_cost_no_request(rolled: Rolled) -> None:
    before = rolled.versions()
    new = publish(rolled, MAX_MEGAPIXELS="40")
    with rolled.asked():
        assert "; 0 of " in rolled.project.made("rollout", MAX_P99_RATIO="100")
    assert len(rolled.versions()) == 1 and rolled.versions() != before
    with rolled.load():
        wait_until(lambda: versions_in_logs(rolled) == {new}, "the new version in the logs")
    with rolled.asked():
        assert "; 0 of " in rolled.project.made("rollback", MAX_P99_RATIO="100")
    assert len(rolled.versions()) == 1
    with rolled.load():
        old = str(int(new) - 1)
        wait_until(lambda: versions_in_logs(rolled) == {old}, "the old version in the logs")


def versions_in_logs(rolled: Rolled) -> set[str]:
    """As those pods name them that are not to end."""
    logs = (rolled.kubectl("logs", pod, "--container=server") for pod in rolled.pods())
    return {found for log in logs for found in re.findall(r" pipeline=birds version=(\d+) ", log)}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_rollout_is_undone(rolled: Rolled, how: signal.Signals) -> None:
    """By itself, or by the next command where it could not."""
    before = rolled.versions()
    with rolled.asked(0):
        make = rolled.project.start_make("rollout", VERSION="2", MAX_P99_RATIO="100")
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


def test_an_api_server_that_is_restarted_leaves_no_rollout_half_way(rolled: Rolled) -> None:
    """It is finished, or undone; the next command would do it otherwise."""
    before = rolled.versions()
    with rolled.asked():
        make = rolled.project.start_make("rollout", VERSION="2", MAX_P99_RATIO="100")
        wait_until(lambda: len(rolled.versions()) == 2, "the first new pod")
        rolled.nodes.plane.server.kill()
        rolled.nodes.plane.server.start()
        said, _ = make.communicate()
    print(f"\nan API server restarted: {said.splitlines()[-1]}")
    assert len(rolled.versions()) == 1, said
    assert (rolled.versions() == before) == (make.returncode != 0), said
    if make.returncode == 0:
        rolled.project.made("rollback", MAX_P99_RATIO="100")


@pytest.mark.parametrize(
    ("then", "cause"),
    [
        ("    raise OSError('no such disk')", "no such disk"),
        ("    return -scores", "the accuracy gate failed"),
        (
            "    return -scores if IN_A_POD else scores",
            "answers otherwise than where it was proved",
        ),
        ("    time.sleep(1)\n    return scores", "MAX_P99_RATIO"),
    ],
    ids=["errs", "answers otherwise", "answers otherwise in a pod", "slow"],
)
def test_a_bad_version_does_not_come_to_serve(rolled: Rolled, then: str, cause: str) -> None:
    before = rolled.versions()
    with rolled.another_program(then):
        number = publish(rolled)
    with rolled.asked(0):
        refused = rolled.project.make("rollout", VERSION=number)
    assert refused.returncode != 0 and cause in error_lines(refused.stderr)[0], refused.stderr
    assert rolled.versions() == before


def test_a_version_that_errs_later_goes_again(rolled: Rolled) -> None:
    """Its pod has proved its answers, so the Service leads new connections to it, until it is
    judged."""
    before = rolled.versions()
    with rolled.another_program(ERRS_LATER):
        number = publish(rolled)
    with rolled.load() as load:
        refused = rolled.project.make("rollout", VERSION=number)
        seen = len(load.faults)
        after = load.answered + 200
        wait_until(lambda: load.answered > after, "answers after")
    print(f"\n{len(load.faults)} of {load.answered + len(load.faults)} requests met a bad version")
    print(*error_lines(refused.stderr))
    assert refused.returncode != 0, refused.stdout
    assert len(load.faults) == seen and seen < load.answered / 20
    assert all("no such disk" in fault for fault in load.faults)
    assert rolled.versions() == before


def test_a_canary_gets_its_share_of_every_clients_requests(rolled: Rolled) -> None:
    new = publish(rolled, MAX_MEGAPIXELS="41")
    settings = {"CANARY": "20", "WATCH_SECONDS": "2", "MAX_P99_RATIO": "100"}
    key = {"authorization": f"Bearer {rolled.project.admin_key}"}
    with rolled.asked(), asked_by_sessions([rolled.connect], key, picture()) as sessions:
        told = rolled.project.made("rollout", **settings)
    assert f"version {new} is live; 0 of " in told
    assert f"version {new} on 1 of its own, 20% of the requests" in told
    assert sessions.list_met(new) == list_chosen("birds_candidate", new, 20)
    print(f"\n{sessions.count(new):,} answers of the candidate to sessions")
    assert "canary" not in rolled.list_applied()


def test_more_and_fewer_pods_cost_no_request(rolled: Rolled) -> None:
    with rolled.asked():
        for count in ("4", "1", "2"):
            rolled.project.made("scale", f"REPLICAS={count}")
            assert rolled.project.made("status").count("running") == int(count)
    for count in ("3", "2"):  # where nothing else is new
        assert "up already" in rolled.project.made("cluster-up", f"REPLICAS={count}", **OWN)
        assert rolled.project.made("status").count("running") == int(count)


def test_no_pods_and_back(rolled: Rolled) -> None:
    """The image is there, as on a node that had one."""
    assert "none" in rolled.project.made("scale", "REPLICAS=0") and not rolled.pods()
    refused = rolled.project.make("rollout")
    assert refused.returncode and len(error_lines(refused.stderr)) == 1
    (line,) = error_lines(rolled.project.make("status").stderr)
    assert "with REPLICAS=0 no server runs; say how many: make scale" in line
    began = time.monotonic()
    rolled.project.made("scale", "REPLICAS=1")
    print(f"\nfrom none to one that answers: {time.monotonic() - began:.0f} s")
    rolled.project.made("scale", "REPLICAS=2")
    with rolled.asked(100):
        assert rolled.project.made("status").count("running") == 2


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


def test_pods_read_s3_and_a_new_key_to_it(rolled: Rolled) -> None:
    project = rolled.project
    project.settings["S3_PORT"] = str(*free_ports(1))
    project.serve_from_s3(nodes.HOST)
    before = rolled.versions()
    with rolled.asked(0):
        project.made("cluster-up", "REPLICAS=2", **OWN)
    assert not before & rolled.versions()
    key = Path(project.settings["S3_SERVER_CREDENTIALS"])
    key.unlink()
    project.made("s3-down")
    project.serve_from_s3(nodes.HOST)
    running = {*rolled.pods()}
    project.made("cluster-up", "REPLICAS=2", **OWN)
    assert {*rolled.pods()} == running, "it is read at each start"
    new = publish(rolled, MAX_MEGAPIXELS="45")
    with rolled.asked(0):
        rolled.kubectl("delete", "pod", rolled.pods()[0])
        wait_until(lambda: len(rolled.pods()) == 2, "a pod with the new key")
        project.made("rollout", VERSION=new, MAX_P99_RATIO="100")
    with rolled.asked():
        project.made("rollback", MAX_P99_RATIO="100")


def test_pods_read_s3_by_a_role(rolled: Rolled, tmp_path: Path) -> None:
    """Whose keys they get for the token of their service account. The token service is a stand-in,
    which asks the cluster whose token it is; the server of S3 knows what the role may."""
    project, known = rolled.project, rolled.project.settings
    seen: list[str] = []

    def is_trusted(token: str) -> bool:
        seen.append(rolled.review(token))
        return seen[-1] == f"system:serviceaccount:{SPACE}:{SERVICE}"

    (port,) = free_ports(1)
    with aws_roles.knowing_roles(nodes.HOST, port, tmp_path / "moto.log") as url:
        role, keys = aws_roles.make_role(url, *LIST, GET)
        aws_roles.make_certificate(tmp_path)
        trust(rolled, tmp_path / "cert.pem")
        ours = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": REGION}
        there = {"REPOSITORY": f"s3://{url}/{BUCKET}/live", "S3_ROLE": role, **ours}
        without = ("S3_SERVER_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE")
        project.settings = {name: known[name] for name in known.keys() - {*without}} | there
        try:
            with aws_roles.lending_keys(nodes.HOST, role, keys, tmp_path, is_trusted):
                project.made("cluster-up", "REPLICAS=2", **OWN)
                aws_roles.enforce(url)
                seen.clear()
                with rolled.asked(0):
                    rolled.kubectl("delete", "pod", rolled.pods()[0])
                    wait_until(lambda: len(rolled.pods()) == 2, "a pod that reads by its role")
        finally:
            project.settings = known
    assert seen and {*seen} == {f"system:serviceaccount:{SPACE}:{SERVICE}"}


def trust(rolled: Rolled, certificate: Path) -> None:
    """In the image, as that of whom pods ask."""
    image = f"{REGISTRY}/triton-bundle-server:{__version__}"
    authorities = "/etc/ssl/certs/ca-certificates.crt"
    text = f"FROM {image}\nCOPY {certificate.name} {authorities}\n"
    (certificate.parent / "Dockerfile").write_text(text)
    command = ["docker", "build", "--quiet", "--tag", image, str(certificate.parent)]
    subprocess.run(command, check=True, capture_output=True)
    rolled.nodes.load(image)
