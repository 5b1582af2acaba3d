"""What a pack is made of."""

from pathlib import Path

import pytest

from extensions.upkeep import audit, pack
from scripts.base import files
from scripts.base.errors import UserError
from scripts.repository import archive


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


def test_it_lists_what_a_model_has_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = tmp_path / "versions"
    monkeypatch.setattr(archive, "HERE", versions)
    own = versions / "birds" / "3" / "models" / "birds_onnx" / "packages"
    for name in (".for", "Some.Thing-1.2.dist-info/licenses/LICENSE"):
        files.write(own / name, "")
    files.write(own / "Some.Thing-1.2.dist-info/METADATA", "Name: Some.Thing\nVersion: 1.2\n")
    files.write(
        own / "Some.Thing-1.2.dist-info/RECORD", "Some.Thing-1.2.dist-info/licenses/LICENSE,,\n"
    )
    (tmp_path / "pack" / "wheels").mkdir(parents=True)
    (found,) = pack.list_packages(tmp_path / "pack")
    assert found["purl"] == "pkg:pypi/some-thing@1.2"
    (text,) = found["properties"]
    within = own.relative_to(versions) / "Some.Thing-1.2.dist-info" / "licenses" / "LICENSE"
    assert text["value"] == f"backup.tar/versions/{within}"
    (package,) = audit.of_versions(versions)
    assert package.title == "some-thing 1.2"
    assert package.where == ("birds/3/models/birds_onnx",)
