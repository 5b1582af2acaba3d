import pytest

from kinds.cascade.tests.served import NAME
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def with_cascade(bring: Bring) -> Project:
    return bring(NAME)
