"""Somebody's own network as the main pipeline: named once, and ImageNet's is nowhere."""

import io
import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

import docker
from bundle_client import Client
from bundle_serving.health import reason_not_to_trust
from tests.end_to_end.building.test_compose import Alone
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import (
    Project,
    asked_meanwhile,
    error_lines,
    free_ports,
    interrupt,
    picture,
    wait_until,
)
from tests.wheels import write_wheel

LABELS = [f"bird {number}" for number in range(10)]
OTHERS = re.compile("resnet|imagenet", re.IGNORECASE)


def ask_plainly(project: Project, file: bytes) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{project.http}/classify", file, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def list_models(project: Project) -> list[str]:
    """Those of the server's repository, loaded or not."""
    url, headers = f"http://{project.http}/v2/repository/index", {"admin-key": project.admin_key}
    asked = urllib.request.Request(url, b"", headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return [each["name"] for each in json.load(answer)]


def require_alone(project: Project, name: str) -> None:
    """Nothing of another pipeline, wherever pipelines are listed."""
    with urllib.request.urlopen(f"http://{project.http}/page/served.json", timeout=60) as answer:
        shown = json.load(answer)
    assert [each["model"] for each in shown["pipelines"]] == [name]
    for text in (project.made("status"), project.made("models"), str(shown)):
        assert name in text and not OTHERS.search(text), text
    assert not [model for model in list_models(project) if not model.startswith(name)]
    assert not [process for process in project.processes() if OTHERS.search(str(process.cmdline()))]


def clone_beside_a_network(folder: Path) -> Project:
    draw_network(folder / "birds.onnx")
    (folder / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (folder / "photo.jpg").write_bytes(picture())
    return Project.copy(folder / "clone", FLAVOUR="local", ARCH="", WEIGHTS="", STEPS="")


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Project]:
    project = clone_beside_a_network(tmp_path)
    yield project
    project.end()


@pytest.fixture(scope="module")
def unserved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Path]]:
    """For what is refused before any server is started; and the folder of the network."""
    folder = tmp_path_factory.mktemp("unserved")
    project = clone_beside_a_network(folder)
    (folder / "three.txt").write_text("one\ntwo\nthree\n")
    yield project, folder
    project.end()


def test_a_network_of_ones_own_is_the_main_one(fresh: Project, tmp_path: Path) -> None:
    words = {"FROM": f"{tmp_path}/birds.onnx", "LABELS": f"{tmp_path}/birds.txt"}
    said = fresh.made("up", **words)
    assert not OTHERS.search(said), said
    assert "birds" in said

    require_alone(fresh, "birds")
    answer = json.loads(fresh.made("classify", IMG=f"{tmp_path}/photo.jpg", JSON="1"))
    best = answer["labels"][0]["label"]
    assert best in LABELS
    shown = fresh.made("up", **words, SAMPLE=f"{tmp_path}/photo.jpg={best}")
    assert "up already" in shown, "what the picture shows is asked of one that is there, too"
    refused = fresh.make("up", **words, SAMPLE=f"{tmp_path}/photo.jpg=heron")
    (line,) = error_lines(refused.stderr)
    assert "not heron" in line and "birds serves all the same" in line
    versions = ["tests/unit/building/test_versions.py", "-n", "0", "-m", "not long"]
    tried = fresh.run_command(sys.executable, "-m", "pytest", *versions)
    assert tried.returncode == 0, "what the checkout serves changes no result of its tests"
    plain = ask_plainly(fresh, picture())
    assert plain["model"] == "birds" and plain["labels"][0]["label"] in LABELS
    with Client(fresh.http) as by_http, Client(fresh.grpc, "grpc") as by_grpc:
        for client in (by_http, by_grpc):
            assert client.classify(picture()).labels[0].label in LABELS


@pytest.mark.rare
def test_every_command_means_the_main_one(fresh: Project, tmp_path: Path) -> None:
    words = {"FROM": f"{tmp_path}/birds.onnx", "LABELS": f"{tmp_path}/birds.txt"}
    fresh.made("up", **words)
    assert "up already" in fresh.made("up"), "it was named once"
    assert "up already" in fresh.made("up", **words), "the same again"
    said = fresh.made("up", FROM=words["FROM"])
    assert f"with LABELS={words['LABELS']}" in said and "up already" in said, "and with fewer words"
    other = draw_network(tmp_path / "other.onnx", seed=1)
    refused = fresh.make("publish", FROM=str(other))
    assert f"make publish WEIGHTS={other}" in error_lines(refused.stderr)[0]
    refused = fresh.make("publish", WEIGHTS=str(other), LABELS=words["LABELS"])
    assert "omit LABELS=" in error_lines(refused.stderr)[0]
    refused = fresh.make("publish", WEIGHTS=f"{tmp_path}/photo.jpg")
    assert "photo.jpg is no whole network, as birds is" in error_lines(refused.stderr)[0]
    assert "published" in fresh.made("publish", WEIGHTS=str(other))
    quick = {"WATCH_SECONDS": "1", "MAX_P99_RATIO": "1000"}
    assert "version 2 is live" in fresh.made("rollout", ANYWAY="1", **quick)
    assert "version 1 is live" in fresh.made("rollback", **quick)
    assert "version 1 is live" in fresh.made("history")

    with asked_meanwhile(lambda: fresh.readiness()) as answers:
        said = fresh.made("up", **words | {"FROM": str(other), "NAME": "owls"})
        assert "birds is served beside owls" in said
    assert answers == [200], "nobody waits for another main one"
    assert ask_plainly(fresh, picture())["model"] == "owls"
    assert "labels" in fresh.made("classify", MODEL="birds", IMG=f"{tmp_path}/photo.jpg", JSON="1")
    assert "owls is served beside birds" in fresh.made("up", MAIN="birds")
    assert ask_plainly(fresh, picture())["model"] == "birds"
    (line,) = error_lines(fresh.make("up", "NAME=owls").stderr)
    assert "NAME=owls is of a new network" in line and "make up MAIN=owls" in line
    refused = fresh.make("remove-model", NAME="birds")
    assert "birds is the main pipeline" in error_lines(refused.stderr)[0]
    fresh.made("remove-model", NAME="owls")

    saved = tmp_path / "saved.tar"
    fresh.made("backup", TO=str(saved))
    fresh.end()
    restored = Project.copy(tmp_path / "restored", FLAVOUR="local", ARCH="", WEIGHTS="", STEPS="")
    try:
        restored.made("restore", FROM=str(saved))
        assert "birds" in restored.made("up")
        assert not OTHERS.search(restored.made("status"))
    finally:
        restored.end()


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ({"FROM": "{}/birds.onnx", "LABELS": "{}/three.txt"}, "3 labels"),
        ({"FROM": "{}/birds.onnx", "ARCH": "resnet18"}, "FROM= already names a network"),
        ({"FROM": "{}/birds.onnx", "NAME": "preprocessing"}, "preprocessing already exists"),
        ({"FROM": "{}/birds.onnx", "NAME": "video"}, "video already exists"),
        ({"FROM": "{}/birds.onnx", "MAIN": "resnet50"}, "MAIN=resnet50 names one main pipeline"),
        ({"FROM": "{}/none.onnx"}, "does not exist"),
        ({"FROM": "{}/birds.onnx", "MODEL": "places"}, "MODEL= names a pipeline that is there"),
        ({"MAIN": "owls"}, "owls, which does not exist"),
        ({"NAME": "owls"}, "NAME=owls is of a new network, and nothing says which"),
        ({"PICTURES": "scale: 1"}, "PICTURES=scale: 1 is of a new network"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    unserved: tuple[Project, Path], words: dict[str, str], cause: str
) -> None:
    project, folder = unserved
    done = project.make("up", *(f"{name}={text.format(folder)}" for name, text in words.items()))
    assert done.returncode
    (line,) = error_lines(done.stderr)
    assert cause in line
    assert not (project.path / "own").exists() or not list((project.path / "own").rglob("*.yaml"))
    assert not (project.path / "build" / "versions" / "main.txt").exists()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """A clone on a machine with Docker alone, and a network in own/."""
    require_docker()
    folder = tmp_path_factory.mktemp("alone")
    words = {"FROM": "own/birds.onnx", "LABELS": "own/birds.txt"}
    project = Project.bare(folder / "clone", ARCH="", WEIGHTS="", SAMPLES="", STEPS="", **words)
    (project.path / "own").mkdir()
    draw_network(project.path / "own" / "birds.onnx")
    (project.path / "own" / "birds.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (project.path / "own" / "post.py").write_text(POST)
    checkout = Alone(project, folder / "bin")
    try:
        yield checkout
    finally:
        checkout.compose("down", "--volumes", "--rmi", "local")


def test_docker_alone_takes_it_in_without_pytorch(alone: Alone) -> None:
    alone.up()
    answer = ask_plainly(alone.project, picture())
    assert answer["model"] == "birds" and answer["labels"][0]["probability"] == 1
    said = alone.compose("logs", "--no-log-prefix").stdout
    assert "laid out: version 1: birds.onnx" in said and not OTHERS.search(said), said
    images = alone.run("docker", "images", "--format", "{{.Repository}}").stdout.split()
    project = json.loads(alone.compose("config", "--format", "json").stdout)["name"]
    assert f"{project}-export-own" in images and f"{project}-export" not in images
    alone.up()
    assert "nothing to lay out" in alone.compose("logs", "--no-log-prefix", "export").stdout


def test_one_container_takes_it_in_and_serves_it(alone: Alone, tmp_path: Path) -> None:
    """With the server's image of the test before, or a new one."""
    assert alone.compose("build", "server").returncode == 0
    project = json.loads(alone.compose("config", "--format", "json").stdout)["name"]
    engine, image = docker.from_env(), f"{project}-server"
    model = tmp_path / "birds"
    model.mkdir()
    draw_network(model / "birds.onnx")
    (model / "labels.txt").write_text("".join(f"{label}\n" for label in LABELS))
    (model / "post.py").write_text(POST)
    for path in (model, *tmp_path.parents):
        path.chmod(path.stat().st_mode | 0o055)
    (port,) = free_ports(1)
    shut_in: dict[str, Any] = {
        "environment": {"TRUST": "1"},  # for the program
        "volumes": [f"{model}:/model:ro"],
        "ports": {"8000/tcp": ("127.0.0.1", port)},
        "read_only": True,
        "tmpfs": {"/tmp": "", "/run/triton": "exec,mode=1777"},
        "cap_drop": ["ALL"],
    }
    server = engine.containers.run(image, detach=True, **shut_in)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: reason_not_to_trust(address, "birds") is None, "an answer")
        own = replace(alone.project, settings=alone.project.settings | {"HTTP_PORT": str(port)})
        answer = ask_plainly(own, picture())
        assert answer["model"] == "birds" and answer["labels"][0]["probability"] == 1
    finally:
        server.remove(force=True)

    for mounts in ({}, {"/tmp": ""}):
        server = engine.containers.run(image, detach=True, **shut_in | {"tmpfs": mounts})
        try:
            assert server.wait()["StatusCode"] == 1
            (line,) = server.logs().decode().splitlines()
            assert "cannot be written to" in line and "--tmpfs /run/triton" in line
        finally:
            server.remove(force=True)

    for name, text, cause in (
        ("requirements.txt", "robins\n", "cannot be installed by this image, which has no pip"),
        ("labels.txt", "one\ntwo\n", "2 labels, and birds.onnx 10 classes"),
    ):
        (model / "requirements.txt").unlink(missing_ok=True)
        (model / name).write_text(text)
        server = engine.containers.run(image, detach=True, **shut_in)
        try:
            assert server.wait()["StatusCode"] == 1
            (line,) = error_lines(server.logs().decode())
            assert cause in line
        finally:
            server.remove(force=True)


PRE = """
import robins
from PIL import ImageOps

def preprocess(picture):
    if picture.width == 13:
        raise ValueError(robins.SONG)
    return ImageOps.flip(picture.resize((64, 64)))
"""
POST = """
import numpy as np

def postprocess(scores):
    return np.eye(10)[-1 - scores.argmax()]
"""


@pytest.mark.parametrize("steps", ["1", pytest.param("3", marks=pytest.mark.rare)])
def test_steps_of_ones_own(fresh: Project, tmp_path: Path, steps: str) -> None:
    words = {"FROM": f"{tmp_path}/birds.onnx", "LABELS": f"{tmp_path}/birds.txt"}
    fresh.made("up", **words, STEPS=steps, NAME="usual")
    usual = int(ask_plainly(fresh, turned(picture()))["labels"][0]["index"])
    write_steps(tmp_path)
    (tmp_path / "post.py").write_text(POST.replace("np.eye(10)", "np.eye(9)"))
    (line,) = error_lines(fresh.make("add-model", **words, NAME="own").stderr)
    assert "TRUST=1" in line
    (line,) = error_lines(fresh.make("add-model", **words, NAME="own", TRUST="1").stderr)
    assert "post.py, line 5: IndexError" in line
    (tmp_path / "post.py").write_text(POST)
    fresh.made("add-model", **words, NAME="own", TRUST="1", STEPS=steps)
    ready = re.findall(r"^ ?(own_\w+) +\d+ +READY", fresh.made("models"), re.MULTILINE)
    assert ("own_preprocessing" in ready) == (steps == "3")
    answer = json.loads(fresh.made("classify", MODEL="own", IMG=f"{tmp_path}/photo.jpg", JSON="1"))
    assert answer["labels"][0]["index"] == 9 - usual
    assert answer["labels"][0]["probability"] == 1
    Image.new("RGB", (13, 20)).save(tmp_path / "thin.png")
    (line,) = error_lines(fresh.make("classify", MODEL="own", IMG=f"{tmp_path}/thin.png").stderr)
    assert "thirteen pixels wide" in line
    (fresh.path / "own/networks/own/pre.py").write_text(PRE.replace("flip", "mirror"))
    assert "own version 2" in fresh.made("publish", MODEL="own")
    interrupt_a_load(fresh)
    again = json.loads(fresh.made("classify", MODEL="own", IMG=f"{tmp_path}/photo.jpg", JSON="1"))
    assert again["labels"] == answer["labels"]


def interrupt_a_load(fresh: Project) -> None:
    """The version from before is left, in the repository too, for the server's next start."""
    before = list_laid_out(fresh)
    (fresh.path / "own/networks/own/pre.py").write_text(f"import time\n{PRE}\ntime.sleep(15)\n")
    make = fresh.start_make("up", MODEL="own")
    wait_until(lambda: list_laid_out(fresh) != before, "the new version's folder")
    output = interrupt(make)
    assert "Traceback" not in output and list_laid_out(fresh) == before
    assert "version 3 stopped (up): interrupted" in fresh.made("history", MODEL="own")


def list_laid_out(project: Project) -> set[str]:
    live = project.path / "build" / "live"
    return {str(path.relative_to(live)) for path in live.glob("own*/[0-9]*")}


@pytest.mark.rare
def test_a_backup_has_ones_own_steps(fresh: Project, tmp_path: Path) -> None:
    """And what they import: nothing of them is anywhere else by then."""
    words = {"FROM": f"{tmp_path}/birds.onnx", "LABELS": f"{tmp_path}/birds.txt"}
    write_steps(tmp_path)
    fresh.made("up", **words, TRUST="1")
    expected = ask_plainly(fresh, picture())["labels"]
    saved = tmp_path / "saved.tar"
    fresh.made("backup", TO=str(saved))
    fresh.end()
    for name in ("wheels", "pre.py", "post.py", "requirements.txt", "birds.onnx"):
        (tmp_path / name).rename(tmp_path / f"gone {name}")
    restored = Project.copy(tmp_path / "restored", FLAVOUR="local", ARCH="", WEIGHTS="", STEPS="")
    try:
        restored.made("restore", FROM=str(saved))
        assert "installing" not in restored.made("up")
        assert ask_plainly(restored, picture())["labels"] == expected
    finally:
        restored.end()


def write_steps(folder: Path) -> None:
    (folder / "pre.py").write_text(PRE)
    (folder / "post.py").write_text(POST)
    write_wheel(folder / "wheels", "robins", "1.0", "SONG = 'thirteen pixels wide'\n")
    (folder / "requirements.txt").write_text("--no-index\n-f wheels\nrobins\n")


def turned(file: bytes) -> bytes:
    """Squashed and upside down."""
    found = io.BytesIO()
    opened = Image.open(io.BytesIO(file)).convert("RGB")
    ImageOps.flip(opened.resize((64, 64))).save(found, "PNG")
    return found.getvalue()
