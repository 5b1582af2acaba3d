"""Ctrl-C and SIGTERM: while they must not interrupt at once, and in a program's first moments."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.base import interrupts
from tests.project import ROOT


def alone(function: Callable[[], None]) -> None:
    """In a process of its own: a library that other tests load leaves this one's alternate signal
    stack where memory no longer is, and a signal that this process raises then ends it."""
    process = multiprocessing.get_context("spawn").Process(target=function)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_it_comes_afterwards() -> None:
    alone(comes_afterwards)


def comes_afterwards() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts("it is done"):
        signal.raise_signal(signal.SIGINT)
        done.append("to its end")
    assert done
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_one_on_the_way_back_never_comes() -> None:
    alone(never_comes)


def never_comes() -> None:
    with interrupts.ignore_interrupts():
        with interrupts.defer_interrupts("it is done"):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_sigterm_comes_once() -> None:
    alone(comes_once)


def comes_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.raise_interrupts():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)  # while it cleans up
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts("it is done"):
        signal.raise_signal(signal.SIGTERM)
        done.append("to its end")
    assert done


IN_A_FINALIZER = """
import signal, sys, time
from scripts.base.errors import run_guarded

class Slow:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def main():
    Slow()
    time.sleep(600)

sys.exit(run_guarded(main))
"""


# As Python 3.11 does where a class names its attributes, or ssl looks for what it lacks.
MADE_ANOTHER = """
import signal, sys
from scripts.base.errors import run_guarded

def main():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise TypeError("expected a message argument") from None

sys.exit(run_guarded(main))
"""


@pytest.mark.parametrize("program", [IN_A_FINALIZER, MADE_ANOTHER], ids=["finalizer", "another"])
def test_one_that_python_does_not_raise_ends_the_program(program: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (
        interrupts.INTERRUPTED,
        "interrupted; partial work was discarded\n",
    )


WITH_A_SERVER = """
import sys, time
from pathlib import Path
from scripts.base.errors import run_guarded
from scripts.stacks import temporary

def main():
    with temporary.running("it", ["sleep", "600"], Path(sys.argv[1]), lambda: None) as server:
        print(server, flush=True)
        while True:  # not signal.pause(), which one that came just before does not end
            time.sleep(0.01)

sys.exit(run_guarded(main))
"""


def test_sigterm_leaves_no_temporary_server(tmp_path: Path) -> None:
    """To all of its group, as `timeout make torture` sends it, and again by make."""
    command = subprocess.Popen(
        [sys.executable, "-c", WITH_A_SERVER, tmp_path / "log"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout
    server = int(command.stdout.readline())
    for _ in range(2):
        command.terminate()
    _, said = command.communicate()
    assert (command.returncode, said) == (
        interrupts.INTERRUPTED,
        "interrupted; partial work was discarded\n",
    )
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


IN_A_TERMINAL = """
import sys, time
from pathlib import Path
from scripts.base import interrupts
from scripts.base.errors import run_guarded

def main():
    try:
        print("begun", flush=True)
        while True:  # not signal.pause(), which one that came just before does not end
            time.sleep(0.01)
    finally:
        with interrupts.ignore_interrupts():
            print("cleaning up", flush=True)
            Path(sys.argv[1]).touch()

sys.exit(run_guarded(main))
"""


def test_where_the_terminal_ends_it_is_cleaned_up(tmp_path: Path) -> None:
    """As that of a connection does that breaks."""
    ours, its = os.openpty()
    # Tests that nohup has started would ignore it, and so would the program.
    command = ["env", "--default-signal=HUP", "setsid", "--ctty", sys.executable]
    command += ["-c", IN_A_TERMINAL, str(tmp_path / "cleaned")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=its, stdout=its, stderr=its)
    os.close(its)
    seen = b""
    while not seen.endswith(b"\n"):  # else it may still be writing
        seen += os.read(ours, 100)
    os.close(ours)
    assert process.wait(60) == interrupts.INTERRUPTED
    assert (tmp_path / "cleaned").exists()


HELD_BACK = ("scripts.commands operate.status", "scripts.steps.gate --help", "bundle_client --help")
NOT_HELD_BACK = ("bundle_keeper --help", "bundle_door --help")
IMPORT = "import time:"  # how Python begins the line that it writes after each


@dataclass
class Started:
    """A program of ours that tells of each import."""

    command: str
    process: subprocess.Popen[str]
    lines: list[str]

    @classmethod
    def of(cls, command: str) -> Started:
        held_back = interrupts.HELD_BACK if command in HELD_BACK else ()
        process = subprocess.Popen(
            [*held_back, sys.executable, "-m", *command.split()],
            cwd=ROOT,
            env=os.environ | {"PYTHONPROFILEIMPORTTIME": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return cls(command, process, [])

    def until_it_has_imported(self, modules: int) -> None:
        assert self.process.stderr
        while self._imported() < modules and (line := self.process.stderr.readline()):
            self.lines.append(line.rstrip())

    def _imported(self) -> int:
        """Not counted where SIGINT is not held back: what Python imports first."""
        if self.command in HELD_BACK:
            return len(self.lines)
        packages = self.command.partition(" ")[0].split(".")[0]
        names = [line.split("|")[-1].strip() for line in self.lines]
        return len(names) - names.index(packages) if packages in names else 0

    def ended(self) -> tuple[int, list[str]]:
        """Its exit code, and what it wrote."""
        assert self.process.stderr
        self.lines += self.process.stderr.read().splitlines()
        self.process.stderr.close()
        return self.process.wait(), [line for line in self.lines if not line.startswith(IMPORT)]


@pytest.mark.parametrize("command", [*HELD_BACK, *NOT_HELD_BACK])
def test_before_anything_is_begun_it_ends_quietly(command: str) -> None:
    whole = Started.of(command)
    normal = whole.ended()
    ends = []
    for part in range(5):
        started = Started.of(command)
        started.until_it_has_imported(1 + len(whole.lines) * part // 5)
        os.killpg(started.process.pid, signal.SIGINT)
        ends.append(started.ended())
        with pytest.raises(ProcessLookupError):  # nothing is left of it
            os.killpg(started.process.pid, 0)
    by_sigint = [(code, wrote) for code, wrote in ends if (code, wrote) != normal]
    assert by_sigint
    for code, wrote in by_sigint:
        assert code in (interrupts.INTERRUPTED, -signal.SIGINT), wrote
        assert wrote in ([], ["interrupted; partial work was discarded"])
