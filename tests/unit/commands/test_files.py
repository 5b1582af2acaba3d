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
