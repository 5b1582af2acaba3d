from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.host.docker_stack import why_not_docker
from tests.project import ASSETS, Project


@pytest.fixture(scope="session")
def assets() -> Path:
    if ASSETS is None:
        pytest.skip("no real weights and photos (TEST_ASSETS is not set)")
    return ASSETS


def require_docker() -> None:
    if obstacle := why_not_docker():
        pytest.skip(f"no containers here: {obstacle}")


@pytest.fixture(scope="session", params=["local", "cpu"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A server brought up from nothing by `make up`: once by processes, once by containers."""
    if request.param == "cpu":
        require_docker()
    project = Project.copy(
        tmp_path_factory.mktemp(f"served-{request.param}"), FLAVOUR=request.param
    )
    try:
        project.made("up")
        yield project
    finally:
        project.make("clean")  # its images too


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What export and engine made, for tests that are not about making it."""
    project = Project.copy(tmp_path_factory.mktemp("exported"), FLAVOUR="local")
    try:
        project.made("up")
    finally:
        project.make("down")
    return project.path / "build"
