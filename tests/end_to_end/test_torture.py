"""What is known to harm a server, in the short form that takes two minutes."""

from __future__ import annotations

import pytest

from tests.project import Project

pytestmark = pytest.mark.long


@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_everything_comes_back(served: Project) -> None:
    output = served.made("torture", QUICK="1")
    assert "requests that ended it once" in output and "server: SIGKILL" in output
    served.made("status")  # what serves was left alone
