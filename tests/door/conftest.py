from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.door.servers import Behind, behind_the_door


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    with behind_the_door(tmp_path_factory.mktemp("door") / "run") as started:
        yield started
