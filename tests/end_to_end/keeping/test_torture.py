"""What is known to harm a server, in the short form that takes two minutes."""

from __future__ import annotations

import re

import pytest

from tests.project import Project

pytestmark = pytest.mark.long


@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_everything_comes_back(served: Project) -> None:
    done = served.make("torture", QUICK="1")
    output = done.stdout + done.stderr
    assert "requests that ended it once" in output and "server: SIGKILL" in output
    if done.returncode:  # a busy machine lets anyone wait, and nothing else may be wrong
        waited = {*re.findall("^- .*: a bystander waited", output, re.MULTILINE)}
        assert f"error: {len(waited)} of " in output, output
    served.made("status")  # what serves was left alone
