import shutil
from pathlib import Path

import pytest

from scripts.base import files
from scripts.base.errors import UserError


def test_what_another_user_left_is_not_said_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.remove_own(tmp_path / "gone")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # root is refused nothing
    with pytest.raises(UserError, match="another user"):
        files.remove_own(tmp_path)


def test_of_what_a_link_leads_to_nothing_is_removed(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (link := tmp_path / "link").symlink_to(elsewhere)
    files.remove_own(link)
    assert elsewhere.exists() and not link.is_symlink()
