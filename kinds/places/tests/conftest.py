from pathlib import Path

import pytest

from kinds.places.tests.served import NAME, weights
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest) -> Path:
    return weights(request)


@pytest.fixture(scope="session")
def with_places(bring: Bring) -> Project:
    return bring(NAME)
