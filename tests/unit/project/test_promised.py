"""What users may rely on (docs/compatibility.md)."""

import pytest

from tests import promised
from tests.project import ROOT


def test_nothing_that_is_promised_goes_without_a_word() -> None:
    gone = promised.read_record() - promised.list_promises()
    undeclared = promised.list_undeclared(gone, (ROOT / "CHANGELOG.md").read_text())
    assert not undeclared, "name each, in backticks, under Unreleased in CHANGELOG.md"


def test_the_record_has_all_that_is_promised() -> None:
    missing = promised.list_promises() - promised.read_record()
    assert not missing, "add them: .venv/bin/python -m tests.promised"


@pytest.mark.parametrize(
    ("gone", "line"),
    [
        ("setting ARCH", "- `ARCH` is called `NETWORK`."),
        ("client Client.hear(self, source)", "- `Client.hear` takes a list."),
        ("model video output FRAMES: TYPE_INT32 1", "- `FRAMES` is INT64."),
        ("http POST /classify top", "- `top` is gone."),
        ("command up", "- `make up` is called `make start`."),
    ],
)
def test_what_goes_is_named_in_the_changes(gone: str, line: str) -> None:
    changes = f"# Changelog\n\n## Unreleased\n\n{{}}\n## 0.1\n\n{line}\n"
    assert promised.list_undeclared({gone}, changes.format("- Faster.\n")) == [gone]
    assert promised.list_undeclared({gone}, changes.format(f"{line}\n")) == []
