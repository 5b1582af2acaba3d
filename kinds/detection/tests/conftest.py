import pytest

from kinds.detection.tests.served import NAME
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def with_detection(bring: Bring) -> Project:
    return bring(NAME)
