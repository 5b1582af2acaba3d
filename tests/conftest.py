from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

from scripts.base import files
from scripts.stacks.containers import why_not_docker
from tests.pipelines import EXPORTS, ask_each, checkpoint_of_places
from tests.project import ASSETS, Project, picture

# Whoever is started in the background by a shell ignores Ctrl-C, and so does all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What costs most to make is made once: the files of tests that share it are run by one worker, and
# each other file by one.
TOGETHER = {
    "test_serving.py": "served",
    "test_containers.py": "served",
    "test_bench.py": "served",
    "test_guard.py": "served",
    "test_keeper.py": "served",
    "test_add_model.py": "served",
    "test_similar.py": "served",
    "test_places.py": "served",
    "test_sentiment.py": "served",
    "test_together.py": "served",
    "test_cascade.py": "served",
    "test_lifecycle.py": "exported",
    "test_comparison.py": "exported",
    "test_tune.py": "exported",
    "test_pipeline.py": "exported",
    "test_rollout.py": "versions",
    "test_s3.py": "versions",
}


# Two workers end at the same time if what takes longest begins first.
LONGEST_FIRST = ("versions", "served", "test_gpu_rehearsal.py", "exported")


def group(nodeid: str) -> str:
    file = nodeid.partition("::")[0].rpartition("/")[2]
    return TOGETHER.get(file, file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(group(item.nodeid), len(places)))


class Together(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together:
    return Together(config, log)


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
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint_of_places(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For exports, which are the same whatever the flavour."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="session")
def together(served: Project, places: Path, kept: Path) -> Project:
    """The same server with every pipeline in it, each brought there by its own command."""
    weights = served.settings["WEIGHTS"]
    served.settings |= {"SENTIMENT": "minilm", "PLACES": str(places), "CASCADE": weights}
    for made in kept.iterdir():
        files.link_tree(made, served.path / "build" / made.name)
    (served.path / "noise.jpg").write_bytes(picture())
    began = served.server_began()
    ask_each(served, served.path / "noise.jpg")
    assert served.server_began() == began
    for name in EXPORTS:
        files.link_tree(served.path / "build" / name, kept / name)
    return served


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What export and engine made, for tests that are not about making it: by the first worker that
    wants it, while another one waits."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exported"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            project = Project.copy(tmp_path_factory.mktemp("exported-by"), FLAVOUR="local")
            try:
                project.made("up")
            finally:
                project.make("down")
            made.symlink_to(project.path / "build")
    return made
