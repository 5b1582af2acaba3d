"""The pod that `make kubernetes` writes, as containers that share what a pod's containers share."""

from __future__ import annotations

import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import docker
from bundle_client import Client
from tests.conftest import require_docker
from tests.end_to_end.test_beyond_this_machine import key_of
from tests.end_to_end.test_drift import answered_over
from tests.pods import Pod
from tests.project import Project, picture, wait_until
from tests.unit.test_kubernetes import built


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, str]]:
    require_docker()
    project = Project.copy(tmp_path_factory.mktemp("pod"), FLAVOUR="local")
    name = project.path.name
    build = ["docker", "compose", "--project-name", name, "build", "server"]
    ran = subprocess.run(build, cwd=project.path, env=project.environment(), capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    yield project, f"{name}-server"
    docker.from_env().images.remove(f"{name}-server")


@pytest.fixture
def pod(image: tuple[Project, str], exported: Path, tmp_path: Path) -> Iterator[tuple[Pod, str]]:
    project, name = image
    key = key_of(project, "ann")
    project.made("kubernetes", "PUSH=registry.example")
    objects = built(project.path / "build" / "kubernetes")
    claims = {"triton-bundle-models": exported / "live"}
    with Pod(objects, claims, tmp_path, project.path.name, name) as running:
        yield running, key


@pytest.mark.long
def test_its_probes_pass_and_a_picture_is_answered(pod: tuple[Pod, str], tmp_path: Path) -> None:
    running, key = pod
    assert not running.passes("readiness")
    running.until_started()
    assert running.passes("readiness") and running.passes("liveness")

    ca_file = tmp_path / "triton-bundle-tls" / "cert.pem"
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(picture())
    url = f"https://localhost:{running.port('http')}"
    with Client(url, api_key=key, ca_file=str(ca_file)) as client:
        assert client.classify(photo).labels

    def reference() -> bytes:
        ran = running.server.exec_run(["cat", "/state/references.json"])
        return bytes(ran.output) if ran.exit_code == 0 else b""

    answer_many(running, key, ca_file)
    kept = wait_until(reference, "the reference")

    # A container that dies is replaced in the same pod, and its volumes stay.
    running.server.remove(force=True)
    assert not running.passes("liveness")
    running.start()
    running.until_started()
    assert reference() == kept
    answer_many(running, key, ca_file)
    wait_until(lambda: "bundle_answer_drift_index{" in metrics(running, key, ca_file), "the index")

    assert running.stop() == 0
    assert not running.passes("readiness")


def answer_many(running: Pod, key: str, ca_file: Path) -> None:
    trusted = grpc.ssl_channel_credentials(ca_file.read_bytes())
    with grpc.secure_channel(f"localhost:{running.port('grpc')}", trusted) as channel:
        answered_over(channel, 0, ("authorization", f"Bearer {key}"))


def metrics(running: Pod, key: str, ca_file: Path) -> str:
    context = ssl.create_default_context(cafile=str(ca_file))
    asked = urllib.request.Request(
        f"https://localhost:{running.port('metrics')}/metrics",
        headers={"Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(asked, timeout=10, context=context) as answer:
        return str(answer.read().decode())
