"""A minute at full speed: nothing fails, and no memory stays behind."""

import re
import subprocess

import pytest

from tests.project import ROOT, Project

# What the server holds after the first half minute, it holds after the second.
MORE = 1.05


@pytest.mark.rare
@pytest.mark.parametrize("served", ["local", "gpu"], indirect=True)
def test_memory_does_not_grow(served: Project) -> None:
    soak = [str(ROOT / ".venv/bin/python"), "-m", "benchmark.soak", "--minutes", "1"]
    done = subprocess.run(
        soak, cwd=served.path, env=served.environment(), capture_output=True, text=True
    )
    told = re.findall(r"^- +(\d+) s: (\d+) MiB, ([\d,]+) answered", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and len(told) == 3, done.stdout + done.stderr
    (_, _, none), (_, warm, half), (_, last, whole) = told
    assert none == "0" and half != whole
    assert int(last) < MORE * int(warm), done.stdout
