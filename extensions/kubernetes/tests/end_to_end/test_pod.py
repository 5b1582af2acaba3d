"""The pods of Kubernetes, as containers that share what a pod's containers share."""

from __future__ import annotations

import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

import docker
from bundle_client import Client
from extensions.kubernetes.kustomization import SOURCE
from extensions.kubernetes.tests.pods import Object, Pod
from extensions.kubernetes.tests.unit.test_kubernetes import built, one
from tests.end_to_end.test_beyond_this_machine import key_of
from tests.end_to_end.test_drift import answered_over
from tests.plugin import require_docker
from tests.project import Project, picture, wait_until

pytestmark = pytest.mark.rare

CLAIM = "triton-bundle-models"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    require_docker()
    return Project.copy(tmp_path_factory.mktemp("pod"), FLAVOUR="local")


@pytest.fixture(scope="module")
def image(project: Project) -> Iterator[Callable[[str], str]]:
    """Builds one, and returns its name."""
    made: set[str] = set()

    def build(service: str) -> str:
        name = project.path.name
        command = ["docker", "compose", "--project-name", name, "build", service]
        environment = project.environment()
        ran = subprocess.run(command, cwd=project.path, env=environment, capture_output=True)
        assert ran.returncode == 0, ran.stderr.decode()
        made.add(f"{name}-{service}")
        return f"{name}-{service}"

    yield build
    for name in made:
        docker.from_env().images.remove(name, force=True)


def objects(project: Project) -> list[Object]:
    project.made("kubernetes", "PUSH=registry.example")
    return built(project.path / "build" / "kubernetes")


def test_its_probes_pass_and_a_picture_is_answered(
    project: Project, image: Callable[[str], str], exported: Path, tmp_path: Path
) -> None:
    key = key_of(project, "ann")
    images = {"triton-bundle-server": image("server")}
    ca_file = tmp_path / "triton-bundle-tls" / "cert.pem"
    written = objects(project)
    with Pod(written, {CLAIM: exported}, images, tmp_path, project.path.name) as pod:
        assert not pod.passes("readiness")
        pod.start()
        assert pod.passes("readiness") and pod.passes("liveness")
        assert labels(pod, key, ca_file)

        def reference() -> bytes:
            ran = pod.server.exec_run(["cat", "/state/references.json"])
            return bytes(ran.output) if ran.exit_code == 0 else b""

        answer_many(pod, key, ca_file)
        kept = wait_until(reference, "the reference")
        # A container that dies is replaced in the same pod, and its volumes stay.
        pod.server.remove(force=True)
        assert not pod.passes("liveness")
        pod.start()
        assert reference() == kept
        answer_many(pod, key, ca_file)
        wait_until(lambda: "bundle_answer_drift_index{" in metrics(pod, key, ca_file), "the index")

        assert pod.stop() == 0
        assert not pod.passes("readiness")


def test_a_job_builds_what_the_pod_serves(
    project: Project, image: Callable[[str], str], tmp_path: Path
) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    claim.chmod(0o777)  # as fsGroup lets them write
    images = {f"triton-bundle-{name}": image(name) for name in ("export", "layout", "server")}
    job = built(SOURCE / "jobs" / "cpu")
    one(job, "ConfigMap")["data"] |= {"ARCH": "mobilenet_v2", "WEIGHTS": "random"}

    def ran(name: str) -> str:
        with Pod(job, {CLAIM: claim}, images, tmp_path, f"{project.path.name}-{name}") as pod:
            return pod.completed()

    assert "laid out: " in ran("job")
    again = ran("again")
    assert "nothing to export" in again and "nothing to check" in again
    assert "nothing to lay out" in again
    key, name = key_of(project, "bob"), f"{project.path.name}-built"
    ca_file = tmp_path / "triton-bundle-tls" / "cert.pem"
    with Pod(objects(project), {CLAIM: claim}, images, tmp_path, name) as pod:
        pod.start()
        assert labels(pod, key, ca_file)
        assert pod.stop() == 0


def labels(pod: Pod, key: str, ca_file: Path) -> list[str]:
    url = f"https://localhost:{pod.port('http')}"
    with Client(url, api_key=key, ca_file=str(ca_file)) as client:
        return [each.label for each in client.classify(picture()).labels]


def answer_many(pod: Pod, key: str, ca_file: Path) -> None:
    trusted = grpc.ssl_channel_credentials(ca_file.read_bytes())
    with grpc.secure_channel(f"localhost:{pod.port('grpc')}", trusted) as channel:
        answered_over(channel, 0, ("authorization", f"Bearer {key}"))


def metrics(pod: Pod, key: str, ca_file: Path) -> str:
    asked = urllib.request.Request(
        f"https://localhost:{pod.port('metrics')}/metrics",
        headers={"Authorization": f"Bearer {key}"},
    )
    context = ssl.create_default_context(cafile=str(ca_file))
    with urllib.request.urlopen(asked, timeout=10, context=context) as answer:
        return str(answer.read().decode())
