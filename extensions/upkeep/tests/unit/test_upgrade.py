"""What an upgrade finds that nobody made there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from extensions.upkeep import upgrade
from scripts.base.errors import UserError
from scripts.repository import archive, layout_number


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "versions"
    made.mkdir()
    monkeypatch.setattr(archive, "HERE", made)
    monkeypatch.setattr(layout_number, "PATH", made / "layout")
    return made


def test_files_folders_and_links_to_them_are_read(versions: Path) -> None:
    (versions / "1").mkdir()
    (versions / "layout").symlink_to("1/elsewhere")
    (versions / "2").symlink_to("1")
    upgrade.require_plain()


@pytest.mark.parametrize("linked", [False, True])
def test_nobody_waits_for_a_pipe(versions: Path, linked: bool) -> None:
    pipe = versions.parent / "pipe" if linked else versions / "1" / "version.json"
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    if linked:
        (versions / "layout").symlink_to(pipe)
    with pytest.raises(UserError, match="is neither a file nor a folder"):
        upgrade.require_plain()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_the_layouts_number_is_a_files(versions: Path, make: Callable[[Path], None]) -> None:
    """Which every command reads."""
    make(versions / "layout")
    with pytest.raises(UserError, match="is no file"):
        layout_number.here()


@pytest.mark.parametrize("name", [".env", ".env.before"])
def test_settings_are_a_file(versions: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "DOTENV", versions.parent / ".env")
    (versions.parent / name).mkdir()
    with pytest.raises(UserError, match="is a folder"):
        upgrade.require_plain()
