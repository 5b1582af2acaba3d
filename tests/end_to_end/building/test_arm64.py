"""The server's image for ARM64: built, and a picture answered, on an emulated processor.

With qemu 7.2 on two busy cores of an AMD EPYC, the build took 12 minutes, the rest 100 seconds.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin import require_docker
from tests.project import Project, picture, run

EMULATOR = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
BASE, ARM64_BASE = "debian:bookworm-slim", "arm64v8/debian:bookworm-slim"


def require_emulator() -> None:
    require_docker()
    # F: the kernel holds the emulator open, so that containers need not have it.
    if not (EMULATOR.exists() and re.search("^flags: .*F", EMULATOR.read_text(), re.MULTILINE)):
        pytest.skip("no emulated ARM64 here (apt-get install qemu-user-static binfmt-support)")
    ways = (["docker", "image", "inspect", ARM64_BASE], ["docker", "pull", ARM64_BASE])
    if all(subprocess.run(way, capture_output=True).returncode for way in ways):
        pytest.skip(f"no {ARM64_BASE} here (python3 .ci/docker_engine.py --arm64)")


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[Project]:
    """With the smallest network, exported and asked by this machine's own processor before: to the
    keeper, a server that takes ten seconds for an answer is one that hangs."""
    require_emulator()
    project = Project.copy(tmp_path / "arm64", FLAVOUR="local", ARCH="drawn", WEIGHTS="random")
    project.settings["SAMPLES"] = ""
    dockerfile = project.path / "docker" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(f"FROM {BASE}", f"FROM {ARM64_BASE}"))
    try:
        yield project
    finally:
        project.make("clean")


def labels(project: Project, picture: Path) -> dict[str, float]:
    answer = json.loads(project.made("classify", f"IMG={picture}", "TOP=8", "JSON=1"))
    return {each["label"]: each["probability"] for each in answer["labels"]}


@pytest.mark.rare
def test_a_picture_is_answered(emulated: Project, tmp_path: Path) -> None:
    noise = tmp_path / "noise.jpg"
    noise.write_bytes(picture())
    emulated.made("up")
    here = labels(emulated, noise)
    emulated.made("down")
    emulated.settings |= {"FLAVOUR": "cpu", "START_TIMEOUT": "1500"}
    emulated.settings["DOCKER_DEFAULT_PLATFORM"] = "linux/arm64"
    up = emulated.start_make("up")
    output, _ = up.communicate()
    assert up.returncode == 0, output
    answered = labels(emulated, noise)
    assert answered.keys() == here.keys()
    assert max(abs(answered[label] - here[label]) for label in here) < 0.01
    image = f"{emulated.compose_project}-server"
    assert run("docker", "inspect", "--format", "{{.Architecture}}", image) == "arm64\n"
