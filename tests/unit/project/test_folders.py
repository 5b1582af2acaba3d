"""Every folder of this checkout can be looked through: 20 files side by side at most."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.unit.project.test_touched import tracked

MOST = 20


def test_no_folder_is_crowded() -> None:
    counts = Counter(str(Path(name).parent) for name in tracked())
    assert len(counts) > 100
    assert {folder: count for folder, count in counts.items() if count > MOST} == {}
