"""What fails beside other tests is run once more, alone, at the end: those with a real server, on
a machine that may be busy. Run as a plugin of pytest (conftest.py)."""

import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest

UNSTEADY = Path(__file__).parent / "unsteady.txt"
# Where servers are real. What fails elsewhere, fails.
WITH_SERVERS = ("tests/door/", "/end_to_end/")
MOST = 3
# More failures than that are no matter of a busy machine.
MOST_TRIED = 12
ALONE = "TESTS_RUN_ALONE"


class Again:
    def __init__(self) -> None:
        self.failed: dict[str, None] = {}  # in their order
        self.passed_alone: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # a file that cannot be imported
            self.failed[report.nodeid] = None

    @pytest.hookimpl(wrapper=True, trylast=True)  # once the workers have ended
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not may_be_tried(self.failed):
            return
        self.passed_alone = [each for each in self.failed if passes_alone(each)]
        if is_green(self.failed, self.passed_alone, listed(UNSTEADY.read_text())):
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for each in self.passed_alone:
            terminalreporter.write_line(f"passed alone after failing: {each}")
        again = listed(UNSTEADY.read_text()) & {*self.passed_alone}
        for each in sorted(again):
            terminalreporter.write_line(f"which is red, for tests/unsteady.txt has it: {each}")


def may_be_tried(failed: Iterable[str]) -> bool:
    """Whether each has a real server, and there are not too many of them."""
    names = [*failed]
    served = all(any(part in each for part in WITH_SERVERS) for each in names)
    return 0 < len(names) <= MOST_TRIED and served


def is_green(failed: Iterable[str], passed_alone: Iterable[str], unsteady: set[str]) -> bool:
    passed = {*passed_alone}
    return {*failed} == passed and len(passed) <= MOST and not passed & unsteady


def listed(text: str) -> set[str]:
    """The tests of unsteady.txt: a date, the test, and the cause in each line."""
    return {found[1] for found in re.finditer(r"^\d{4}-\d\d-\d\d\s+(\S+::\S+)", text, re.M)}


def passes_alone(nodeid: str) -> bool:
    print(f"\nonce more, alone: {nodeid}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", nodeid]
    return subprocess.run(command, env=os.environ | {ALONE: "1"}).returncode == 0


def wanted(config: pytest.Config) -> bool:
    """Not by a worker, nor for the few tests that somebody looks at, nor by such a run itself."""
    return bool(config.getoption("numprocesses", None)) and ALONE not in os.environ
