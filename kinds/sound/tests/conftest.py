import pytest

from kinds.sound.tests.served import NAME
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def with_sounds(bring: Bring) -> Project:
    return bring(NAME)
