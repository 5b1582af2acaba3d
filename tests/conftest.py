from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.host.docker_stack import why_not_docker
from tests.project import ASSETS, Project

# What costs most to make is made once: tests that share it are run by one worker. Each file of
# end-to-end tests stays together for the same reason.
COSTLY = ("served", "exported")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        shared = next((name for name in COSTLY if name in fixtures), None)
        if shared or "end_to_end" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group(shared or item.path.stem))


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
