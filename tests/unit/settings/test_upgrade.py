"""What an upgrade changes in .env."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.settings import renamed, settings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# mine\nexport MOST_P99 = 3  # x\n", "# mine\nexport MAX_P99_RATIO = 3  # x\n"),
        ("MOST_P99=3\nMAX_P99_RATIO=4\n", "# MOST_P99=3\nMAX_P99_RATIO=4\n"),
        ("# MOST_P99=3\nMOST_P99_OF_MINE=1\n", "# MOST_P99=3\nMOST_P99_OF_MINE=1\n"),
    ],
)  # fmt: skip
def test_renamed_settings_are_carried_over(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renamed, "DOTENV", tmp_path / ".env")
    assert renamed.in_dotenv() == {}
    (tmp_path / ".env").write_text(before)
    if before != after:
        assert renamed.in_dotenv() == {"MOST_P99": "MAX_P99_RATIO"}
        renamed.rename()
        assert (tmp_path / ".env.before").read_text() == before
    assert (tmp_path / ".env").read_text() == after and renamed.in_dotenv() == {}


def test_the_names_of_today_are_settings() -> None:
    assert {*renamed.RENAMED.values()} <= settings.ALL.keys()
    assert not {*renamed.RENAMED} & settings.ALL.keys()
