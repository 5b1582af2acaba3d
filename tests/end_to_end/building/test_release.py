"""A release, step by step as .github/workflows/release.yml has it, to a registry and an index on
this machine; then what was released serves."""

import hashlib
import json
import platform
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import docker
from bundle_client import __version__
from tests.networks import draw_network
from tests.plugin import require_docker
from tests.project import Project, picture, run
from tests.surroundings import registries

# The images take minutes to build and push.
pytestmark = pytest.mark.rare

LABELS = [f"bird {number}" for number in range(10)]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_docker()
    with registries.running(tmp_path_factory.mktemp("registry")) as address:
        yield f"{address}/team"


class Release:
    """A clone with a commit, and what its steps leave."""

    def __init__(self, home: Path, registry: str) -> None:
        self.project = Project.bare(home / "released", FLAVOUR="cpu", SAMPLES="")
        self.key, self.out = home / "key", self.project.path / "build" / "release"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        who = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "released"]):
            run("git", "-C", str(self.project.path), *words)
        self.variables = {"REGISTRY": registry, "SIGNING_KEY": str(self.key)}
        self.tags_before_join: list[str] = []

    def list_tags(self) -> list[str]:
        """Of the server's image in the registry."""
        host, _, team = self.variables["REGISTRY"].partition("/")
        url = f"http://{host}/v2/{team}/triton-bundle-server/tags/list"
        return sorted(json.load(urllib.request.urlopen(url, timeout=60))["tags"])

    def step(self, *names: str) -> str:
        done = self.project.run_command(sys.executable, ".ci/release.py", *names, **self.variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, registry: str) -> Iterator[Release]:
    made = Release(tmp_path_factory.mktemp("release"), registry)
    try:
        for name in ("packages", "check", "notes", "index", "install", "images", "sbom"):
            made.step(name)
        made.tags_before_join = made.list_tags()
        for name in ("join", "provenance", "sign"):
            made.step(name)
        yield made
    finally:
        made.project.make("clean")


def test_what_was_installed_from_the_index_answers(released: Release) -> None:
    program = str(released.out / "installed" / "bin" / "triton-bundle")
    assert run(program, "version") == f"{__version__}\n"
    assert "triton-bundle help COMMAND" in run(program, "help")
    listed = sorted(each.name for each in (released.out / "index").rglob("*.*"))
    assert [name for name in listed if name != "index.html"] == [
        f"triton_bundle-{__version__}-py3-none-any.whl",
        f"triton_bundle-{__version__}.tar.gz",
        f"triton_bundle_client-{__version__}-py3-none-any.whl",
        f"triton_bundle_client-{__version__}.tar.gz",
    ]


def test_the_version_is_there_once_its_images_are_joined(released: Release) -> None:
    """A machine that is done first releases nothing by itself."""
    its_own = f"{__version__}-{platform.machine()}"
    assert released.tags_before_join == [its_own]
    assert released.list_tags() == [__version__, its_own]


def test_all_of_it_is_signed(released: Release) -> None:
    signers = released.out.parent / "signers"
    signers.write_text(f"release {released.key.with_suffix('.pub').read_text()}")
    sums = released.out / "SHA256SUMS"
    words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release", "-n", "file"]
    words += ["-s", f"{sums}.sig"]
    subprocess.run(words, input=sums.read_bytes(), check=True, capture_output=True)
    subprocess.run(["sha256sum", "--check", "--quiet", sums.name], cwd=released.out, check=True)
    named = {line.split()[1] for line in sums.read_text().splitlines()}
    left_out = {"SHA256SUMS", "SHA256SUMS.sig"}
    assert named == {each.name for each in released.out.glob("*.*")} - left_out


def test_where_it_comes_from_is_said(released: Release) -> None:
    said = json.loads((released.out / "provenance.json").read_text())
    digests = {each["name"]: each["digest"]["sha256"] for each in said["subject"]}
    for file in (*released.out.glob("*.whl"), *released.out.glob("*.tar.gz")):
        assert digests[file.name] == hashlib.sha256(file.read_bytes()).hexdigest()
    server = f"{released.variables['REGISTRY']}/triton-bundle-server"
    run("docker", "buildx", "imagetools", "inspect", f"{server}@sha256:{digests[server]}")
    commit = run("git", "-C", str(released.project.path), "rev-parse", "HEAD").strip()
    source, _ = said["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"]["gitCommit"] == commit
    (sbom,) = released.out.glob("sbom-server-*.json")
    names = {each["name"] for each in json.loads(sbom.read_text())["components"]}
    assert {"openvino", "libpython3.11"} <= names


@pytest.fixture
def user(tmp_path: Path, released: Release) -> Iterator[Project]:
    """Somebody with the released version's files, a network, and none of the images."""
    images = docker.from_env().images
    for name in [name for image in images.list() for name in image.tags]:
        if name.startswith(released.variables["REGISTRY"]):
            images.remove(name)
    empty = dict.fromkeys(("ARCH", "WEIGHTS", "STEPS", "SAMPLES"), "")
    project = Project.copy(tmp_path / "user", FLAVOUR="cpu", **empty)
    project.settings["REGISTRY"] = released.variables["REGISTRY"]
    (project.path / "own").mkdir()
    draw_network(project.path / "own" / "birds.onnx", 0)
    (project.path / "own" / "birds.txt").write_text("\n".join(LABELS))
    try:
        yield project
    finally:
        project.make("clean")
        project.run_command("docker", "compose", "down", "--volumes")


def ask(project: Project) -> str:
    asked = urllib.request.urlopen(f"http://{project.http}/classify?top=1", picture(), timeout=60)
    return str(json.load(asked)["labels"][0]["label"])


def test_compose_takes_the_released_images(user: Project) -> None:
    user.settings |= {"FROM": "own/birds.onnx", "LABELS": "own/birds.txt"}
    done = user.run_command("docker", "compose", "up", "--wait")
    assert done.returncode == 0, user.run_command("docker", "compose", "logs").stdout + done.stderr
    assert ask(user) in LABELS
    running = json.loads(
        user.run_command("docker", "compose", "ps", "server", "--format", "json").stdout
    )
    assert running["Image"] == f"{user.settings['REGISTRY']}/triton-bundle-server:{__version__}"
    assert "building" not in done.stderr
    user.made("down")
    assert user.run_command("docker", "compose", "ps", "-q", "server").stdout == ""


def test_make_takes_them_too(user: Project) -> None:
    done = user.made("up", "FROM=own/birds.onnx", "LABELS=own/birds.txt")
    server = f"{user.settings['REGISTRY']}/triton-bundle-server:{__version__}"
    assert f"image {server}: fetching" in done and "building if needed" not in done
    assert ask(user) in LABELS
