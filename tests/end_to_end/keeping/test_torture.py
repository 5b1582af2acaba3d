"""What is known to harm a server, in the short form that takes two minutes."""

from __future__ import annotations

import re

import pytest

from tests.project import Project, error_lines

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


@pytest.mark.rare
@pytest.mark.parametrize("served", ["gpu"], indirect=True)
def test_what_is_made_for_a_gpu_is_refused(served: Project) -> None:
    (line,) = error_lines(served.make("torture", QUICK="1").stderr)
    assert "made for a GPU; harm the one that serves" in line
