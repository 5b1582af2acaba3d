"""Whatever changes, the long tests of it are run."""

import re
import subprocess

from tests import touched
from tests.project import ROOT


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def test_every_file_has_its_tests_or_needs_none() -> None:
    assert [path for path in tracked() if not touched.is_known(path)] == []
    for start, tests in touched.RULES.items():
        assert any(path.startswith(start) for path in tracked()), start
        there = (test for test in tests if not is_taken_out(test))
        assert all((ROOT / test).exists() for test in there), start


def is_taken_out(test: str) -> bool:
    home, name, *_ = test.split("/")
    return home in ("kinds", "extensions") and not (ROOT / home / name).is_dir()


def test_every_long_test_is_of_something() -> None:
    marked = re.compile(r"^(?:@|pytestmark = .*)pytest\.mark\.long|mark\.long\]?$", re.MULTILINE)
    long = {
        path
        for path in tracked("*test_*.py")
        if touched.WHERE_TOUCHED.match(path) or marked.search((ROOT / path).read_text())
    }
    with_tests = ("tests/", "kinds/", "extensions/")
    product = [path for path in tracked() if not path.startswith(with_tests)]
    of_folders = tracked("kinds/*/recipe.py", "extensions/*/README.md")
    reached = touched.find_tests(product + of_folders)
    assert len(long) > 20
    assert [path for path in sorted(long) if not path.startswith(tuple(reached))] == []


def test_a_change_has_the_tests_of_its_folder_and_those_above() -> None:
    kind = str(next(ROOT.glob("kinds/*/tests")).parent.relative_to(ROOT))
    found = touched.find_tests(["scripts/rollout/verdict.py", f"{kind}/recipe.py", "docs/gpu.md"])
    assert {f"{kind}/tests", "tests/end_to_end/keeping/test_rollout.py"} <= found
    assert "tests/end_to_end/test_s3.py" not in found
    assert touched.find_tests(["docs/gpu.md", "CHANGELOG.md"]) == set()
