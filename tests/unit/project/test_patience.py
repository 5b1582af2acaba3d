"""How long tests wait: by what the machine gives, so that a busy one makes them slow, not red."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tests import project
from tests.project import Patience, finish, wait_until
from tests.screens import chromium


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
    words = ["sh", "-c", f": {mark}; sleep 999; true"]
    with pytest.raises(AssertionError, match="wrote nothing more, and did not end"):
        run(f"import subprocess; subprocess.run({words})")

    def is_gone() -> bool:
        return words not in [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])]

    wait_until(is_gone, "the end of what it started")  # killed, and on a busy machine not yet ended


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[chromium.Tab, int]]:
    """A tab, and the end that its browser writes to."""
    monkeypatch.setattr(chromium, "PATIENCE_S", 0.2)
    come, its = os.pipe()
    read, to = os.pipe()
    yield chromium.Tab(to, come), its
    for each in (come, read, to):
        os.close(each)


def test_a_browser_that_ended_is_not_waited_for(tab: tuple[chromium.Tab, int]) -> None:
    found, its = tab
    os.close(its)
    with pytest.raises(AssertionError, match="has ended"):
        found.do("Page.enable")


def test_a_browser_that_tells_much_but_does_not_answer(tab: tuple[chromium.Tab, int]) -> None:
    found, its = tab

    def tell() -> None:
        with suppress(BrokenPipeError), os.fdopen(its, "wb") as written:
            while not over:
                written.write(b'{"method": "Log.entryAdded", "params": {"entry": {"text": ""}}}\0')
                written.flush()

    over: list[bool] = []
    telling = threading.Thread(target=tell)
    telling.start()
    with pytest.raises(AssertionError, match="does not answer"):
        found.do("Page.enable")
    over.append(True)
    os.read(found.come, 1 << 20)
    telling.join()
