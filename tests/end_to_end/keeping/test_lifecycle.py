"""What goes wrong on real machines, on purpose: one clear line each, and the next make works."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.project import (
    Project,
    asked_meanwhile,
    error_lines,
    free_ports,
    interrupt,
    picture,
    wait_until,
)

# Exported in a few seconds.
SMALL = {"ARCH": "drawn", "WEIGHTS": "random"}


@pytest.fixture(scope="module")
def unserved(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Project:
    """For what is refused before any server is started."""
    made = Project.copy(tmp_path_factory.mktemp("unserved"), FLAVOUR="local")
    made.take(exported)
    return made


@pytest.fixture
def project(tmp_path: Path, exported: Path) -> Iterator[Project]:
    """A project with its export done, nothing served yet."""
    made = Project.copy(tmp_path / "project", FLAVOUR="local")
    made.take(exported)
    yield made
    made.end()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory, exported: Path) -> Iterator[Project]:
    """For what a server outlives: each test begins with `up`, which leaves a whole one alone."""
    made = Project.copy(tmp_path_factory.mktemp("serving"), FLAVOUR="local")
    made.take(exported)
    yield made
    made.end()


def stubs(project: Project) -> list[psutil.Process]:
    return project.processes("triton_python_backend_stub")


def state(project: Project) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((project.path / "build/run/state.json").read_text())
    return loaded


def test_down_leaves_nothing(project: Project) -> None:
    project.made("up")
    everyone = project.processes()
    assert len(everyone) >= 10 and stubs(project) and project.shared_memory()
    assert {region.stat().st_mode & 0o777 for region in project.shared_memory()} == {0o600}
    with asked_meanwhile(project.readiness) as answers:
        project.made("down")
    assert answers == [200, 503, 0]  # so that load balancers leave in time
    assert project.processes() == [] and project.shared_memory() == []
    assert not any(process.is_running() for process in everyone)
    assert "no server was running" in project.made("down")


def test_up_twice_at_once(project: Project) -> None:
    first, second = project.start_make("up"), project.start_make("up")
    outputs = [make.communicate(timeout=300)[0] for make in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert sum("up already" in text for text in outputs) == 1
    assert sum("waiting for another command" in text for text in outputs) == 1


def test_ctrl_c_during_the_export(project: Project) -> None:
    shutil.rmtree(project.path / "build" / "versions")
    project.settings |= SMALL
    make = project.start_make("up")
    drafts = project.path / "build" / "versions" / ".draft"
    wait_until(lambda: list(drafts.glob(".onnx.*.tmp")), "the export to begin writing")
    output = interrupt(make)
    assert "interrupted" in output and "Traceback" not in output
    assert not drafts.exists()
    assert "up:" in project.made("up")


@pytest.mark.rare
def test_kill_9_during_the_export(project: Project) -> None:
    shutil.rmtree(project.path / "build" / "versions")
    project.settings |= SMALL
    make = project.start_make("up")
    drafts = project.path / "build" / "versions" / ".draft"
    wait_until(lambda: list(drafts.glob(".onnx.*.tmp")), "the export to begin writing")
    os.killpg(make.pid, signal.SIGKILL)
    make.communicate()
    assert not (drafts / "onnx").exists()
    assert "serving drawn" in project.made("up")
    assert not drafts.exists()


def test_ctrl_c_during_the_start(project: Project) -> None:
    make = project.start_make("up")
    wait_until(lambda: stubs(project), "the server's processes")
    assert "interrupted" in interrupt(make)
    assert stubs(project) == [] and project.shared_memory() == []
    assert "up:" in project.made("up")


def test_kill_9_of_everyone(project: Project) -> None:
    project.made("up")
    project.kill()
    refused = project.make("status")
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    assert "does not answer" in line and "make up" in line
    assert "up:" in project.made("up")
    project.made("status")
    assert len({path.name for path in project.shared_memory()}) <= 6  # none of the dead server's


def test_kill_9_of_whoever_starts_the_keeper_afresh(serving: Project) -> None:
    """The keeper takes its place, and starts another one; the server goes on."""
    serving.made("up")
    began = serving.server_began()
    os.kill(int(str(state(serving)["pid"])), signal.SIGKILL)
    wait_until(lambda: serving.make("status").returncode == 0, "all to be as it should be")
    assert "up already" in serving.made("up") and serving.server_began() == began


def test_kill_9_of_the_server(serving: Project) -> None:
    """It comes back by itself."""
    serving.made("up")
    (server,) = serving.processes("bin/tritonserver")
    server.kill()
    wait_until(lambda: serving.processes("bin/tritonserver") not in ([], [server]), "another one")
    wait_until(lambda: serving.make("status").returncode == 0, "it to be back")
    assert "up already" in serving.made("up")
    assert len({path.name for path in serving.shared_memory()}) <= 6  # none of the dead server's


def test_kill_9_of_one_model(project: Project) -> None:
    """Triton stays green over a dead stub; ours does not, and it comes back."""
    project.made("up")
    (stub,) = project.processes("triton_python_backend_stub", "postprocessing")
    stub.kill()
    wait_until(lambda: "reloaded it" in project.make("status").stdout, "it to be reloaded")
    assert "up already" in project.made("up")


def test_a_busy_port(project: Project) -> None:
    with socket.create_server(("127.0.0.1", int(project.settings["HTTP_PORT"]))):
        refused = project.make("up")
        assert refused.returncode != 0
        (line,) = error_lines(refused.stderr)
        assert f"port {project.settings['HTTP_PORT']} is taken by" in line
        assert f"process {os.getpid()}" in line and "HTTP_PORT=" in line
        assert "up:" in project.made("up", HTTP_PORT=str(free_ports(1)[0]))


def test_a_busy_port_leaves_the_running_server_alone(serving: Project, tmp_path: Path) -> None:
    serving.made("up")
    began = serving.server_began()
    photo = tmp_path / "noise.jpg"
    photo.write_bytes(picture())
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as other:
        busy = {"HTTP_PORT": str(other.getsockname()[1])}
        asked = serving.make("classify", IMG=str(photo), JSON="1", **busy)
        assert json.loads(asked.stdout)["labels"]
        (line,) = asked.stderr.splitlines()
        runs = f"HTTP_PORT={serving.settings['HTTP_PORT']}"
        assert runs in line and f"make up HTTP_PORT={busy['HTTP_PORT']}" in line
        for command in ("up", "demo"):
            (line,) = error_lines(serving.make(command, **busy).stderr)
            assert f"port {busy['HTTP_PORT']} is taken by" in line
            assert f"make {command} HTTP_PORT=" in line
            assert serving.server_began() == began and serving.readiness() == 200


def test_no_network_and_no_weights(unserved: Project) -> None:
    """torchvision's weights are out of reach: what was exported before stays."""
    nowhere = {"https_proxy": "http://127.0.0.1:9", "no_proxy": ""}
    versions = unserved.path / "build" / "versions"
    refused = unserved.make("up", ARCH="resnet18", WEIGHTS="default", **nowhere)
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    for way_out in ("cannot be downloaded", "WEIGHTS=resnet18.pth", "ARCH=drawn"):
        assert way_out in line
    assert "Traceback" not in refused.stderr
    there = sorted(path.name for path in versions.iterdir())
    assert there == ["1", "beside.json", "history.jsonl", "layout"]


@pytest.mark.parametrize(
    ("settings", "cause", "remedy"),
    [
        ({"WEIGHTS": "nowhere.pth"}, "no weights file", "WEIGHTS="),
        ({"WEIGHTS": "Makefile"}, "cannot be read as weights", "state dict"),
        ({"ARCH": "resnet5O", "WEIGHTS": "random"}, "ARCH=resnet5O", "resnet50"),
        ({"PRECISION": "fp8"}, "PRECISION=fp8", "bf16"),
        ({"FLAVOUR": "tpu"}, "FLAVOUR=tpu", "local"),
        ({"HTTP_PORT": "http"}, "HTTP_PORT=http", "a port"),
        ({"HTTP_PORT": "80000"}, "HTTP_PORT=80000", "a port"),
        ({"BIND": "203.0.113.7"}, "BIND=203.0.113.7", "127.0.0.1"),
        ({"SAMPLES": "nowhere", "ARCH": "resnet18", "WEIGHTS": "random"}, "SAMPLES=", "folder"),
        ({"MAX_MEGAPIXELS": "-1"}, "MAX_MEGAPIXELS=-1", "a positive number"),
    ],
)
def test_wrong_settings(
    unserved: Project, settings: dict[str, str], cause: str, remedy: str
) -> None:
    refused = unserved.make("up", **settings)
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    assert cause in line and remedy in line
    assert "Traceback" not in refused.stderr


def test_a_change_is_named_and_served(project: Project, tmp_path: Path) -> None:
    project.made("up")
    (tmp_path / "noise.jpg").write_bytes(picture())
    output = project.make("classify", IMG=str(tmp_path / "noise.jpg"), **SMALL).stderr
    assert "make up ARCH=drawn" in output and "arch:" not in output
    output = project.made("up", **SMALL)
    assert "arch: mobilenet_v2 -> drawn" in output
    status = project.made("status")
    # The names of the API, whatever they serve.
    assert "ensemble_python_resnet50, main" in status and "resnet50_onnx, serving drawn" in status
    labels = project.path / "build" / "live" / "ensemble_python_resnet50" / "labels.txt"
    assert "untrained" in labels.read_text()


def test_classify_brings_the_server_up_and_keeps_its_settings(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "noise one.jpg").write_bytes(picture())
    answered = project.make("classify", IMG=str(tmp_path / "noise one.jpg"), JSON="1")
    assert "up:" in answered.stderr
    assert json.loads(answered.stdout)["labels"]
    # Settings that are omitted keep their values.
    del project.settings["ARCH"], project.settings["WEIGHTS"]
    assert "up" not in project.made("classify", IMG=str(tmp_path / "noise one.jpg"), JSON="1")


def test_without_an_engine_the_local_flavour_is_chosen(project: Project) -> None:
    output = project.made("up", FLAVOUR="", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert "flavour local: " in output and "Docker" in output
    refused = project.make("up", FLAVOUR="cpu", DOCKER_HOST="unix:///nowhere/docker.sock")
    (line,) = error_lines(refused.stderr)
    assert "FLAVOUR=cpu needs Docker" in line and "FLAVOUR=local" in line


@pytest.mark.rare
def test_the_operators_key_gone_replaced_and_spoilt(project: Project) -> None:
    """Whatever becomes of its file, the next `up` serves with the key that is then there."""
    file = project.path / "build" / "key" / "admin.key"
    assert "created the admin key" in project.made("up")
    first = file.read_text()
    project.made("down")
    assert "created the admin key" not in project.made("up") and file.read_text() == first

    file.unlink()
    (line,) = error_lines(project.make("models").stderr)
    assert "admin.key is missing" in line and "make up" in line
    output = project.made("up")
    assert "created the admin key" in output and "up:" in output and "up already" not in output
    assert file.read_text() != first
    assert "READY" in project.made("models")

    file.write_text("a-key-of-the-operators-own\n")
    (line,) = error_lines(project.make("models").stderr)
    assert "rejects the key" in line and "make up" in line
    file.chmod(0o644)
    assert "up:" in project.made("up")
    assert "READY" in project.made("models") and file.stat().st_mode & 0o777 == 0o600

    for spoilt in ("", "two words and more"):
        file.write_text(spoilt)
        for command in ("models", "up"):
            (line,) = error_lines(project.make(command).stderr)
            assert "admin.key contains no key" in line and "rm build/key/admin.key" in line
    assert project.make("classify", IMG="model_repository/preprocessing/warmup").returncode == 0


@pytest.mark.rare
def test_a_damaged_note_of_the_running_server(project: Project) -> None:
    """It goes on; down finds it all the same."""
    project.made("up")
    (project.path / "build" / "run" / "state.json").write_bytes(b"\xff")
    for command in ("status", "up", "history"):
        (line,) = error_lines(project.make(command).stderr)
        assert "state.json cannot be read (it is damaged); make down" in line
    assert project.readiness() == 200
    assert "local server stopped" in project.made("down")
    assert project.processes() == [] and project.shared_memory() == []
    assert "- up: " in project.made("up")


def test_an_operator_without_a_server(project: Project) -> None:
    for command in (
        ("models",),
        ("load", "TRITON_MODEL=resnet50_onnx"),
        ("unload", "TRITON_MODEL=resnet50_trt"),
    ):
        (line,) = error_lines(project.make(*command).stderr)
        assert "no server is running" in line and "make up" in line
    project.made("up")
    project.kill()
    (line,) = error_lines(project.make("load", "TRITON_MODEL=resnet50_onnx").stderr)
    assert project.settings["HTTP_PORT"] in line and "refused" in line
