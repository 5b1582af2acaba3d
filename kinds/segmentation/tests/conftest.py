import pytest

from kinds.segmentation.tests.served import NAME
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def with_segmentation(bring: Bring) -> Project:
    return bring(NAME)
