"""How long tests wait: by what the machine gives, so that a busy one makes them slow, not red."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import pytest

from tests import project
from tests.project import Patience, finish


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return made


@pytest.mark.parametrize(("load", "lasts"), [(0.1, 600), (2, 600), (4, 1200), (30, 9000)])
def test_a_second_counts_as_much_as_one_program_gets_of_it(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, load: float, lasts: int
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0, 0))
    patience = Patience(600)
    for clock.now in range(1, lasts):
        assert not patience.is_over()
    clock.now = lasts + 1
    assert patience.is_over()


def run(program: str) -> None:
    with tempfile.TemporaryFile("w+") as out:
        finish(subprocess.Popen([sys.executable, "-uc", program], stdout=out), out)


def test_what_goes_on_writing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an export tells of each step: with 4 s of patience it takes 6."""
    monkeypatch.setattr(project, "LONGEST_S", 4)
    run("import time\nfor number in range(6): print(number); time.sleep(1)")


def test_what_hangs_is_ended_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "LONGEST_S", 1)
    mark = f"never{os.getpid()}"
    sleep = f"subprocess.run(['sh', '-c', ': {mark}; sleep 999; true'])"
    with pytest.raises(AssertionError, match="wrote nothing more, and did not end"):
        run(f"import subprocess; {sleep}")
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert f"sh -c : {mark}" not in listed
