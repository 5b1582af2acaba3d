from collections.abc import Iterator

import pytest

from tests.door.rehearsed import Rehearsed, behind_the_door_of_a_gpu
from tests.door.servers import Asked, Behind, behind_the_door
from tests.plugin import require_docker


@pytest.fixture(scope="session")
def by_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    with behind_the_door(tmp_path_factory.mktemp("door") / "run") as started:
        yield started


@pytest.fixture(scope="session")
def on_a_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsed]:
    require_docker()
    with behind_the_door_of_a_gpu(tmp_path_factory.mktemp("door-gpu")) as started:
        yield started


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Asked:
    """By processes; and where a test only asks, on a GPU too."""
    started: Asked = request.getfixturevalue(getattr(request, "param", "by_processes"))
    return started
