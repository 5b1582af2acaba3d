"""What a pack is made of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from extensions.upkeep import audit, pack
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
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


def test_git_may_know_no_files_or_odd_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a checkout of another user; or a name that is no UTF-8."""
    monkeypatch.setattr(pack, "ROOT", tmp_path)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    picture = os.fsdecode(b"caf\xe9.jpg")
    (tmp_path / picture).touch()
    assert pack.bundle_files() == [picture]
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UserError, match=r"files: detected dubious ownership in [^\n]*$") as refused:
        pack.bundle_files()
    assert refused.value.remedy.endswith(f"git config --global --add safe.directory {tmp_path}")


def test_it_may_lie_in_a_folder_with_a_space(tmp_path: Path) -> None:
    """As on a medium with a name of two words."""
    packed = tmp_path / "USB DISK" / "pack"
    files.write(packed / "python", f"{sys.version_info[0]}.{sys.version_info[1]}\n")
    found = "import os\nprint(os.environ['PIP_FIND_LINKS'])\nraise SystemExit(3)\n"
    files.write(packed / "bundle" / "scripts" / "bootstrap.py", found)
    (packed / "wheels").mkdir()
    (packed / os.fsdecode(b"caf\xe9.jpg")).touch()
    pack.write_sums(packed)
    install = ROOT / "extensions" / "upkeep" / pack.INSTALL
    shutil.copy2(install, packed)
    command: list[str | Path] = ["sh", packed / pack.INSTALL, tmp_path / "there"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 3, ran.stderr
    assert ran.stdout.splitlines()[-1] == f"file://{tmp_path}/USB%20DISK/pack/wheels"


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
