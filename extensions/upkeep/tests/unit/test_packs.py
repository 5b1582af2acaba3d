"""What a pack is made of."""

from pathlib import Path

import pytest

from extensions.upkeep import pack
from scripts.base import files
from scripts.base.errors import UserError


def test_a_pack_has_nothing_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    monkeypatch.setattr(pack, "ROOT", checkout)
    monkeypatch.setenv("PATH", "")  # without git
    for name in ("Makefile", ".env", ".env.before", "own/mine", "build/x"):
        files.write(checkout / name, "")
    assert pack.bundle_files() == ["Makefile"]
    (tmp_path / "secret").touch()
    (checkout / "inside").symlink_to("Makefile")
    assert sorted(pack.bundle_files()) == ["Makefile", "inside"]
    (checkout / "notes").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="'notes' leads elsewhere"):
        pack.bundle_files()
