"""`docker compose` as its users know it: alone, with no make and no Python on the machine;
beside make; and in two checkouts of one name."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import docker
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, error_lines, picture, wait_until

pytestmark = pytest.mark.long

# Of the environment: where Docker is, and its plugins.
KEPT = ("DOCKER_HOST", "DOCKER_CONFIG", "HOME", "PATH")

# Somebody's who is not root, and none of this machine's.
OWNER = 12_345
SMALL = {"ARCH": "squeezenet1_1", "WEIGHTS": "random", "STEPS": "auto"}


@pytest.fixture(scope="module", autouse=True)
def engine() -> docker.DockerClient:
    require_docker()
    return docker.from_env()


class Alone:
    """A checkout on a machine with Docker alone."""

    def __init__(self, project: Project, tools: Path) -> None:
        self.project = project
        self.path = project.path
        tools.mkdir()
        for name in ("docker", "curl"):
            (tools / name).symlink_to(str(shutil.which(name)))
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environment = kept | project.settings | {"PATH": str(tools)}

    def run(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment | settings,
            capture_output=True,
            text=True,
        )

    def compose(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return self.run("docker", "compose", *words, **settings)

    def up(self, **settings: str) -> str:
        done = self.compose("up", "--wait", **settings)
        assert done.returncode == 0, done.stderr + self.compose("logs").stdout
        return done.stderr

    def keys(self, asked: str) -> str:
        return self.compose("run", "--rm", "-T", "-e", asked, "keys").stdout

    def errors(self, step: str) -> list[str]:
        logs = self.compose("logs", "--no-log-prefix", step).stdout
        return error_lines(logs.replace("\033[2K", ""))  # Compose 2.26 erases nothing first

    def containers(self) -> list[Any]:
        return of_checkout(self.path)


def of_checkout(path: Path) -> list[Any]:
    """Whatever their project is called, and whether make or Compose started them."""
    found = docker.from_env().containers.list(all=True, ignore_removed=True)
    label = "com.docker.compose.project.working_dir"
    return [each for each in found if each.labels.get(label, "").startswith(str(path))]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    folder = tmp_path_factory.mktemp("alone")
    project = Project.bare(folder / "clone", **SMALL, SAMPLES="")
    for path in (project.path, *project.path.rglob("*")):
        if os.getuid() == 0 and not path.is_symlink():
            os.chown(path, OWNER, OWNER)
    checkout = Alone(project, folder / "bin")
    try:
        yield checkout
    finally:
        checkout.compose("down", "--volumes", "--rmi", "local")


def test_one_command_from_a_fresh_clone_to_an_answer(alone: Alone) -> None:
    alone.up()
    (alone.path / "photo.jpg").write_bytes(picture())
    url = f"{alone.project.http}/classify?top=3"
    asked = alone.run("curl", "--silent", "--data-binary", "@photo.jpg", url)
    assert len(json.loads(asked.stdout)["labels"]) == 3
    output = alone.compose("logs", "--no-log-prefix").stdout
    steps = ("created the admin key", "exporting to ONNX", "- precision ", "laid out: version 1")
    for step in steps:
        assert step in output, output


def test_all_that_was_made_belongs_to_the_owner_of_the_checkout(alone: Alone) -> None:
    owner = (alone.path / "compose.yaml").stat().st_uid
    build = alone.path / "build"
    assert {path.stat().st_uid for path in (build, *build.rglob("*"))} == {owner}
    assert alone.project.admin_key and (build / "key/admin.key").stat().st_mode & 0o007 == 0
    request = urllib.request.Request(
        f"http://{alone.project.http}/v2/repository/index",
        headers={"admin-key": alone.project.admin_key},
        method="POST",
    )
    with urllib.request.urlopen(request) as answer:
        assert PIPELINE in {model["name"] for model in json.load(answer)}


def test_up_again_does_nothing(alone: Alone, engine: docker.DockerClient) -> None:
    def server() -> tuple[str, str]:
        (found,) = (each for each in alone.containers() if each.name.endswith("server-1"))
        return found.id, found.attrs["State"]["StartedAt"]

    def images() -> set[str | None]:
        of_this = f"{alone.path.name}-"
        return {
            each.id
            for each in engine.images.list()
            if any(tag.startswith(of_this) for tag in each.tags)
        }

    before = server(), images()
    assert before[1]
    alone.up()
    assert (server(), images()) == before
    output = alone.compose("logs").stdout
    for nothing in ("nothing to export", "nothing to check", "nothing to lay out"):
        assert output.count(nothing) == 1, output


@pytest.mark.rare
def test_what_cannot_be_had_is_named_in_the_log(alone: Alone) -> None:
    nowhere = {"WEIGHTS": "build/nowhere.pth"}
    refused = alone.compose("up", "--wait", **nowhere)
    assert refused.returncode != 0 and "export" in refused.stderr
    (line,) = alone.errors("export")
    assert "there is no weights file at build/nowhere.pth" in line
    alone.up()  # as before


def test_what_a_umask_hides_is_named_in_the_log(alone: Alone) -> None:
    alone.up()
    hidden = alone.path / "docker" / "steps" / "as-owner"
    hidden.chmod(0o700)
    try:
        refused = alone.compose("up", "--wait", "--force-recreate", "init")
        assert refused.returncode != 0
        (line,) = alone.errors("init")
    finally:
        hidden.chmod(0o755)
    assert "cannot read docker/steps/as-owner" in line and "chmod -R go+rX docker" in line
    alone.up()  # as before


@pytest.mark.rare
def test_a_network_of_ones_own_comes_and_goes(alone: Alone) -> None:
    own = alone.path / "own"
    own.mkdir()
    if os.getuid() == 0:
        os.chown(own, OWNER, OWNER)
    draw_network(own / "birds.onnx")
    alone.up(FROM="own/birds.onnx", ARCH="", WEIGHTS="")
    assert reason_not_to_trust(f"http://{alone.project.http}", "birds") is None
    alone.up()  # as before
    answers(alone.project)


@pytest.mark.rare
def test_a_change_is_a_new_version(alone: Alone) -> None:
    alone.up()
    alone.up(DECODE="full")
    history = (alone.path / "build/versions/history.jsonl").read_text()
    assert [json.loads(line)["version"] for line in history.splitlines()] == [1, 2]
    alone.up()
    assert alone.project.served_version.name == "1"


@pytest.mark.rare
def test_make_goes_on_with_what_compose_made_and_compose_with_what_make_did(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone.up()
    (alone.path / ".venv").symlink_to(Path(__file__).parents[3] / ".venv")
    project = alone.project
    output = project.made("up", FLAVOUR="cpu")
    assert f"removing containers that the Compose project {alone.path.name} started" in output
    assert "export:" not in output and "engine:" not in output and "version 1" in output
    served = [each.id for each in of_checkout(alone.path)]
    assert len(served) == 2

    # Without make's settings: they are written where Compose reads them.
    kept = {name: alone.environment[name] for name in KEPT if name in alone.environment}
    monkeypatch.setattr(alone, "environment", kept)
    assert alone.compose("up", "--detach").returncode == 0
    assert [each.id for each in of_checkout(alone.path)] == served
    assert {*served} == {*alone.compose("ps", "--quiet", "--no-trunc").stdout.split()}
    assert "Started GRPCInferenceService" in alone.compose("logs").stdout
    assert alone.compose("restart").returncode == 0
    answers(project)
    assert alone.compose("down").returncode == 0 and of_checkout(alone.path) == []
    assert alone.compose("up", "--wait").returncode == 0
    answers(project)
    assert "cpu server stopped" in project.made("down")
    assert of_checkout(alone.path) == []

    # Compose starts it under the name that make has written.
    started = alone.compose("up", "--wait", **project.settings)
    assert started.returncode == 0, started.stderr
    assert "version 1" in project.made("up")
    answers(project)
    project.path = alone.path.rename(alone.path.with_name("moved"))
    assert "cpu server stopped" in project.made("down")
    project.path = project.path.rename(alone.path)
    project.made("down")  # it writes this folder's name again
    assert of_checkout(alone.path) == []


def test_other_machines_are_let_in_without_make(alone: Alone) -> None:
    refused = alone.compose("up", "--wait", BIND="0.0.0.0")
    assert refused.returncode != 0
    (line,) = alone.errors("init")
    assert "docker compose run --rm -e ADD=ann keys" in line
    header = alone.keys("ADD=ann").splitlines()[-1]
    assert header.startswith("Authorization: Bearer ")
    alone.up(BIND="0.0.0.0")
    url = f"https://localhost:{alone.project.settings['HTTP_PORT']}/v2"
    ask = ("curl", "--silent", "--cacert", "build/tls/cert.pem", "--write-out", "%{http_code}")
    assert alone.run(*ask, url).stdout.endswith("401")
    assert alone.run(*ask, "--header", header, url).stdout.endswith("200")
    assert "revoked: ann" in alone.keys("REVOKE=ann")


def test_down_leaves_nothing(alone: Alone, engine: docker.DockerClient) -> None:
    (alone.path / ".env").unlink(missing_ok=True)
    alone.up()
    assert alone.compose("down", "--volumes", "--rmi", "local").returncode == 0
    assert of_checkout(alone.path) == []
    label = {"label": f"com.docker.compose.project={alone.path.name}"}
    assert engine.networks.list(filters=label) == engine.volumes.list(filters=label) == []
    tags = {tag for image in engine.images.list() for tag in image.tags}
    built = {f"{alone.path.name}-{target}:latest" for target in ("export", "layout", "server")}
    assert not tags & built


def answers(project: Project) -> None:
    wait_until(
        lambda: reason_not_to_trust(f"http://{project.http}", PIPELINE) is None, "an answer", 120
    )


@pytest.mark.rare
def test_two_checkouts_of_one_name(tmp_path: Path) -> None:
    """Each has a server of its own, and what becomes of one is nothing to the other."""
    one, other = (
        Project.copy(tmp_path / name / "clone", FLAVOUR="cpu", **SMALL) for name in ("a", "b")
    )
    assert one.path.name == other.path.name
    try:
        one.made("up")
        shutil.copytree(one.path / "build" / "versions", other.path / "build" / "versions")
        other.made("up")
        assert one.compose_project != other.compose_project
        its = of_checkout(other.path)
        for command in ("down", "down", "clean"):
            one.made(command)
            assert [each.id for each in of_checkout(other.path)] == [each.id for each in its]
            for each in its:
                each.reload()
                assert each.status == "running" and each.attrs["RestartCount"] == 0
            assert reason_not_to_trust(f"http://{other.http}", PIPELINE) is None
        assert of_checkout(one.path) == [] and not (one.path / ".env").exists()

        # A name that is given is meant: it is another checkout's, and refused.
        refused = one.make("up", COMPOSE_PROJECT_NAME=other.compose_project)
        assert refused.returncode != 0
        assert f"belongs to {other.path}" in refused.stderr
        answers(other)
    finally:
        one.make("clean")
        other.make("clean")
