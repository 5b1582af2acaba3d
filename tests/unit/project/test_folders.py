"""Every folder of this checkout can be looked through, 20 files side by side at most; and those of
kinds and extensions can be taken out."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.project import ROOT
from tests.sources import named
from tests.unit.project.test_touched import tracked

MOST = 20


def test_no_folder_is_crowded() -> None:
    counts = Counter(str(Path(name).parent) for name in tracked())
    assert len(counts) > 100
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}


@pytest.mark.parametrize("folder", named.FOLDERS)
def test_what_can_be_taken_out_is_named_nowhere_else(folder: str) -> None:
    """A rare test takes it out."""
    assert named.find_named(folder) == []


def test_tests_of_the_rest_ask_for_no_pipeline_of_a_kind() -> None:
    names = "|".join(path.stem for path in ROOT.glob("kinds/*/*.yaml"))
    asks = re.compile(rf'(?:find_pipeline|setenv)\((?:"M\w+", )?"({names})"\)')
    tests = [*ROOT.glob("tests/unit/**/*.py"), *ROOT.glob("extensions/*/tests/unit/*.py")]
    found = {str(path.relative_to(ROOT)): asks.findall(path.read_text()) for path in tests}
    assert {path: names for path, names in found.items() if names} == {}
