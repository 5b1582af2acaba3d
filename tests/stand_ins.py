"""The gpu flavour as shipped, on stand-ins for NVIDIA's images: tests/rehearsal."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.base import files
from tests.project import ROOT, Project

REHEARSAL = ROOT / "tests" / "rehearsal"

# Never the tag of a release: real images may lie on this machine. And no other run's.
TAG = f"26.07-rehearsal-{os.getpid()}"
STAND_INS = {
    "pytorch": f"nvcr.io/nvidia/pytorch:{TAG}-py3",
    "tritonserver": f"nvcr.io/nvidia/tritonserver:{TAG}-py3",
    "sdk": f"nvcr.io/nvidia/tritonserver:{TAG}-py3-sdk",
}


@contextmanager
def rehearse(folder: Path) -> Iterator[Project]:
    """A project of the gpu flavour that finds such images."""
    project = Project.copy(
        folder,
        FLAVOUR="gpu",
        TRITON_TAG=TAG,
        COMPOSE_OVERRIDE=str(REHEARSAL / "compose.yaml"),
        REHEARSAL_TENSORRT="11.1.0",
        REHEARSAL_COMPUTE_CAPABILITY="8.6",
    )
    build_stand_ins(project)
    try:
        yield project
    finally:
        project.make("clean")
        subprocess.run(["docker", "image", "rm", *STAND_INS.values()], capture_output=True)


# The images of the cpu flavour, without what `make up` does after it has built them.
BUILD = """
from scripts.settings.settings import Settings
from scripts.stacks.containers import DockerStack
from scripts.artefacts.step import Place

stack = DockerStack(Settings.load())
stack.images.build("server")
stack.prepare_place(Place.EXPORT)
print(stack.project)
"""


def build_stand_ins(project: Project) -> None:
    """From the very images of the cpu flavour."""
    environment = project.environment(FLAVOUR="cpu", COMPOSE_OVERRIDE="")
    bases = run(ROOT / ".venv/bin/python", "-c", BUILD, cwd=project.path, env=environment)
    name = bases.split()[-1]
    ca = project.settings["CA_BUNDLE"] or ROOT / "docker" / "no-ca.pem"
    constraints = ROOT / "requirements" / "constraints.txt"
    for image, tag in STAND_INS.items():
        command = ["docker", "buildx", "build", "--tag", tag, "--secret", f"id=ca,src={ca}"]
        command += ["--secret", f"id=constraints,src={constraints}"]
        command += ["--build-arg", f"CONSTRAINTS={files.sha256(constraints)}"]
        for base in ("export", "server"):
            command += ["--build-arg", f"{base.upper()}={name}-{base}"]
        run(*command, "--file", REHEARSAL / "images" / f"{image}.Dockerfile", REHEARSAL)


def run(*command: str | Path, **how: Any) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, **how)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)
