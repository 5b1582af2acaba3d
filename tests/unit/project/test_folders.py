"""A folder of code can be looked through: 20 files side by side at most."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.project import ROOT

PARTS = ("scripts", "kinds", "extensions", "serving", "client", "benchmark", "docker", "deploy")
MOST = 20


@pytest.mark.parametrize("part", PARTS)
def test_no_folder_of_code_is_crowded(part: str) -> None:
    files = (path for path in (ROOT / part).rglob("*") if path.is_file() and is_source(path))
    counts = Counter(path.parent for path in files)
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}


def is_source(path: Path) -> bool:
    return path.suffix not in (".pyc", ".typed") and "node_modules" not in path.parts
