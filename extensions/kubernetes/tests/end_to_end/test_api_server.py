"""deploy/kubernetes, and what `make kubernetes` writes, as a real API server takes it: its schemas,
its rules, and Pod Security's strictest level. No kubelet runs: no pod starts."""

import itertools
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from bundle_client import __version__
from extensions.kubernetes.kubectl import Kubectl
from extensions.kubernetes.kustomization import SOURCE
from extensions.kubernetes.pods import SERVICE
from extensions.kubernetes.tests import cluster as control_plane
from extensions.kubernetes.tests.cluster import START_S, Cluster
from tests.plugin import require_docker
from tests.project import Project, error_lines, wait_until

OVERLAYS = ("overlays/cpu", "overlays/gpu", "overlays/s3")
JOBS = ("jobs/cpu", "jobs/gpu")
CRDS = os.environ.get("TEST_CRDS")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with control_plane.start(tmp_path_factory.mktemp("kubernetes") / "cluster") as found:
        if CRDS:
            found.kubectl("apply", "--server-side", "--filename", CRDS)
            wait_until(partial(has_all_kinds, found), "the server to know others' kinds")
        yield found


def has_all_kinds(cluster: Cluster) -> bool:
    """It can be asked about each that is defined."""
    defined = json.loads(cluster.kubectl("get", "crd", "--output=json"))["items"]
    kinds = {each["metadata"]["name"] for each in defined}
    return kinds <= {*cluster.kubectl("api-resources", "--output=name").split()}


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """One of its own, which takes restricted pods alone."""
    cluster.make_namespace(name := f"tests-{next(NUMBERS)}")
    return name


def apply(cluster: Cluster, namespace: str, folder: Path, *options: str) -> list[str]:
    """The objects, as it names them. A field that it does not know or warns of is an error."""
    command = ("apply", "--server-side", "--validate=strict", "--namespace", namespace)
    ran = cluster.try_kubectl(*command, "--kustomize", str(folder), *options)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.parametrize("folder", [*OVERLAYS, *JOBS])
def test_it_takes_what_is_shipped(cluster: Cluster, namespace: str, folder: str) -> None:
    assert apply(cluster, namespace, SOURCE / folder, "--dry-run=server")
    assert apply(cluster, namespace, SOURCE / folder)
    before = contents(cluster, namespace)
    apply(cluster, namespace, SOURCE / folder)
    assert contents(cluster, namespace) == before, "applied again, it changes nothing"


def contents(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """What was asked for, by what: another one of a Deployment would replace its pods."""
    kinds = "deployments,jobs,services,networkpolicies,configmaps,horizontalpodautoscalers"
    command = ("get", kinds, "--namespace", namespace, "--output=json")
    return {
        f"{each['kind']}/{each['metadata']['name']}": each.get("spec", each.get("data"))
        for each in json.loads(cluster.kubectl(*command))["items"]
    }


@pytest.mark.parametrize("folder", [*OVERLAYS, *JOBS])
def test_its_pods_may_run_where_only_restricted_ones_may(
    cluster: Cluster, namespace: str, folder: str
) -> None:
    """Of a Deployment or a Job the server only warns; its pods would be refused one by one."""
    for pod in pods(cluster, folder):
        ran = create(cluster, namespace, pod)
        assert ran == "", ran
        container = pod["spec"]["containers"][0]
        container["securityContext"]["allowPrivilegeEscalation"] = True
        assert 'violates PodSecurity "restricted:latest"' in create(cluster, namespace, pod)


def pods(cluster: Cluster, folder: str) -> Iterator[dict[str, Any]]:
    filler = SOURCE / "components" / "volume" / "filler.yaml"
    yield yaml.safe_load(filler.read_text())
    for each in yaml.safe_load_all(cluster.kubectl("kustomize", str(SOURCE / folder))):
        if template := each.get("spec", {}).get("template"):
            # Else it would have to be there: no part of what is shipped, but of the cluster.
            template["spec"].pop("runtimeClassName", None)
            about = {"name": each["metadata"]["name"], **template["metadata"]}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}


def create(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> str:
    """Why not; "" if it may be."""
    command = ("create", "--dry-run=server", "--namespace", namespace, "--filename", "-")
    return cluster.try_kubectl(*command, given=yaml.safe_dump(pod)).stderr


def test_a_field_that_is_wrong_is_refused(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "shipped").symlink_to(SOURCE)
    wrong = [{"op": "add", "path": "/spec/template/spec/containers/0/readOnly", "value": True}]
    kustomization = {
        "resources": ["shipped/overlays/cpu"],
        "patches": [{"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(wrong)}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    with pytest.raises(AssertionError, match=r"unknown field|field not declared"):
        apply(cluster, namespace, tmp_path)


COMPONENTS = [f"components/{each}" for each in ("gateway", "keda", "monitoring")]


@pytest.mark.parametrize("folder", [*COMPONENTS, "kserve"])
def test_it_takes_what_other_projects_define(
    cluster: Cluster, namespace: str, folder: str, tmp_path: Path
) -> None:
    if not CRDS:
        pytest.skip("no definitions of others' kinds (TEST_CRDS is not set)")
    (tmp_path / "shipped").symlink_to(SOURCE)
    shipped = [f"shipped/{folder}"]
    alone = {"resources": shipped}
    beside = {"resources": ["shipped/overlays/cpu"], "components": shipped}
    kustomization = alone if folder == "kserve" else beside
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    assert apply(cluster, namespace, tmp_path)


def test_it_takes_what_is_written_for_these_settings(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    project = Project.copy(tmp_path / "project")
    for settings in (
        {"INSECURE": "1"},
        {"ALLOWED_HOSTS": "classify.example", "MEMORY": "4g", "CORES": "3", "ARCH": "resnet18"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"},
        {"FLAVOUR": "gpu"},
    ):
        project.make("keys", ADD="ann")
        made = project.make("kubernetes", PUSH="registry.example/team", **settings)
        assert made.returncode == 0, made.stderr
        folder = project.path / "build" / "kubernetes"
        apply(cluster, namespace, folder)
        apply(cluster, namespace, folder / "job", "--dry-run=server")
    deployment = cluster.kubectl("get", "deployment", SERVICE, "--namespace", namespace)
    assert SERVICE in deployment


NODE = """
apiVersion: v1
kind: Node
metadata: {name: small}
status: {allocatable: {cpu: "4", memory: 64Gi, pods: "110"}}
"""
NO_IMAGE = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}


def copy_project(cluster: Cluster, folder: Path) -> Project:
    require_docker()
    path = f"{cluster.programs}:{os.environ['PATH']}"
    there = {"PATH": path, "KUBECONFIG": f"{cluster.folder}/kubeconfig"}
    return Project.copy(folder / "project", CORES="2", REGISTRY="registry.example", **there)


def test_commands_go_where_a_start_has_begun(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Also if it was killed half way, and left nothing but a note."""
    project = copy_project(cluster, tmp_path)
    inside = ("--namespace", namespace)
    services = (*inside, "get", "services", "--output=name")
    cluster.kubectl(*inside, "apply", "--kustomize", str(SOURCE / "overlays" / "cpu"))
    cluster.kubectl("apply", "--filename=-", given=NODE)
    noted = project.path / "build" / "cluster"
    noted.mkdir(parents=True)
    (noted / "where.json").write_text(json.dumps({"NAMESPACE": namespace, "CONTEXT": "tests"}))
    about = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}}
    (noted / "objects.json").write_text(json.dumps([about]))
    for name, value in (("NAMESPACE", "other"), ("CONTEXT", "another")):
        (line,) = error_lines(project.make("down", **{name: value}).stderr)
        assert f"and {name}={value} is given; omit it" in line
    assert SERVICE in cluster.kubectl(*services)
    project.made("down")
    assert not cluster.kubectl(*services) and not noted.exists()

    known = {"flavour": "kubernetes", "fingerprint": "", "pipelines": {"birds": 1}}
    known["settings"] = {"NAMESPACE": namespace, "CONTEXT": "tests", "CORES": "2"}
    (project.path / "build" / "run").mkdir(exist_ok=True)
    (project.path / "build" / "run" / "state.json").write_text(json.dumps(known))
    for count, cause in (
        ("500", "the cluster has 1 node with room for 2 such pods"),
        ("3", "the cluster has 1 node"),
        ("abc", "REPLICAS=abc must be 0 or a positive integer"),
        ("-1", "REPLICAS=-1 must be"),
        ("2.5", "REPLICAS=2.5 must be"),
    ):
        (line,) = error_lines(project.make("scale", f"REPLICAS={count}").stderr)
        assert cause in line
    (line,) = error_lines(project.make("scale", "REPLICAS=1", "NAMESPACE=other").stderr)
    assert f"servers run with NAMESPACE={namespace}, and NAMESPACE=other is given" in line


def test_cluster_up_looks_before_it_builds(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Whether there is room, and whether nodes get the image. What a kubelet would say of that is
    written into the pod's status."""
    project = copy_project(cluster, tmp_path)
    project.settings["NAMESPACE"] = namespace
    project.made("keys", "ADD=ann")
    inside = ("--namespace", namespace)
    cluster.kubectl(*inside, "apply", "--kustomize", str(SOURCE / "overlays" / "cpu"))
    cluster.kubectl(*inside, "delete", "deployment", SERVICE)  # the claim stays
    cluster.kubectl("apply", "--filename=-", given=NODE)

    refused = project.make("cluster-up", "REPLICAS=500")
    (line,) = error_lines(refused.stderr)
    assert "REPLICAS=500, and the cluster has 1 node with room for 2 such pods (cpu 2," in line

    make = project.start_make("cluster-up", "REPLICAS=500", "MAX_REPLICAS=500")
    look = (*inside, "get", "pod", "triton-bundle-filler")
    wait_until(lambda: not cluster.try_kubectl(*look).returncode, "the pod that looks")
    status = {"name": "filler", "state": NO_IMAGE, "ready": False, "restartCount": 0}
    status |= {"image": "", "imageID": ""}
    patch = json.dumps({"status": {"containerStatuses": [status]}})
    words = ("patch", "pod", "triton-bundle-filler", "--subresource=status", f"--patch={patch}")
    cluster.kubectl(*inside, *words)
    said, _ = make.communicate()
    image = f"registry.example/triton-bundle-server:{__version__}"
    assert f"no pod comes up with the image {image}: ErrImagePull: no such host" in said
    assert make.returncode and "building" not in said
    assert cluster.try_kubectl(*look).returncode, "it is gone"


@pytest.mark.parametrize("asked_before", [True, False])
def test_a_server_that_restarts_is_waited_for(
    cluster: Cluster,
    namespace: str,
    asked_before: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """kubectl says in other words that it is away where it knows its kinds already."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", f"{cluster.folder}/kubeconfig")
    monkeypatch.setenv("PATH", f"{cluster.programs}:{os.environ['PATH']}")
    kubectl = Kubectl(namespace, "")
    if asked_before:
        assert kubectl.list("pods") == []
    cluster.server.kill()
    comes = threading.Timer(3, cluster.server.start)
    comes.start()
    assert kubectl.list("pods") == []
    comes.join()
    assert capfd.readouterr().out.count("the cluster does not answer; asked again") == 1
    wait_until(cluster.is_ready, "the API server to be ready", START_S)
