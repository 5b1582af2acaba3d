"""When a run is green though a test failed in it, by runs of pytest on small tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

ONE, TWO = "tests/door/test_a.py::test_one", "tests/end_to_end/test_b.py::test_two[local]"
OF_A_KIND = "kinds/film/tests/end_to_end/test_c.py::test_three"
UNSTEADY = f"# why\n2026-01-31  {TWO}  the queue was empty too early\n2026-01-31  {OF_A_KIND}\n"


@pytest.mark.parametrize(
    ("failed", "passed", "green"),
    [
        ([OF_A_KIND], [OF_A_KIND], False),
        ([ONE], [ONE], True),
        ([ONE], [], False),
        ([TWO], [TWO], False),  # as in a change before
        ([f"{ONE}{number}" for number in range(3)], None, True),
        ([f"{ONE}{number}" for number in range(4)], None, False),
    ],
)
def test_is_green(failed: list[str], passed: list[str] | None, green: bool) -> None:
    given = failed if passed is None else passed
    assert again.is_green(failed, given, again.listed(UNSTEADY)) == green


@pytest.mark.parametrize(
    ("failed", "tried"),
    [
        ([ONE, TWO], True),
        ([], False),
        ([ONE, "tests/unit/test_c.py::test_three"], False),
        ([f"{ONE}{number}" for number in range(13)], False),
    ],
)
def test_only_those_with_servers_are_tried_again(failed: list[str], tried: bool) -> None:
    assert again.may_be_tried(failed) == tried


PLUGIN = """
from pathlib import Path
from tests import again

again.UNSTEADY = Path(__file__).parent / "unsteady.txt"

def pytest_configure(config):
    if again.wanted(config):
        config.pluginmanager.register(again.Again())
"""
FAILS_FIRST = """
from pathlib import Path

def test_fails_first():
    mark = Path(__file__).with_name("mark")
    there = mark.exists()
    mark.touch()
    assert there
"""


@pytest.mark.parametrize(
    ("folder", "unsteady", "code"),
    [
        ("tests/door", "", pytest.ExitCode.OK),
        ("tests/unit", "", pytest.ExitCode.TESTS_FAILED),
        (
            "tests/door",
            "2026-01-31 tests/door/test_it.py::test_fails_first once",
            pytest.ExitCode.TESTS_FAILED,
        ),
    ],
)
def test_run(tmp_path: Path, folder: str, unsteady: str, code: pytest.ExitCode) -> None:
    done = run(tmp_path, folder, unsteady)
    assert done.returncode == code, done.stdout
    named = f"passed alone after failing: {folder}/test_it.py::test_fails_first"
    assert (named in done.stdout) == (folder == "tests/door")


def test_a_file_that_cannot_be_read_stays_red(tmp_path: Path) -> None:
    (tmp_path / "tests" / "door").mkdir(parents=True)
    (tmp_path / "tests" / "door" / "test_broken.py").write_text("import nothing_of_the_kind")
    assert run(tmp_path, "tests/end_to_end").returncode != pytest.ExitCode.OK


def run(tmp_path: Path, folder: str, unsteady: str = "") -> subprocess.CompletedProcess[str]:
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "unsteady.txt").write_text(unsteady)
    (tmp_path / folder / "test_it.py").write_text(FAILS_FIRST)
    environment = os.environ | {"PYTHONPATH": str(Path(again.__file__).parents[1])}
    for name in [each for each in environment if each.startswith(("PYTEST_", again.ALONE))]:
        del environment[name]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
