import pytest

from kinds.text.tests.served import NAME
from tests.plugin import Bring
from tests.project import Project


@pytest.fixture(scope="session")
def with_sentiment(bring: Bring) -> Project:
    return bring(NAME)
