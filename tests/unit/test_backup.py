"""Backups: what is in one, and what is refused before anything is touched."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from scripts.base.errors import UserError
from scripts.repository import archive, layout_number
from scripts.settings import arguments
from scripts.upkeep import backup, sealed

EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a version, settings, an own recipe and keys."""
    root = tmp_path / "checkout"
    versions = root / "build" / "versions"
    monkeypatch.setattr(backup, "ROOT", root)
    monkeypatch.setattr(backup, "DOTENV", root / ".env")
    monkeypatch.setattr(archive, "HERE", versions)
    monkeypatch.setattr(layout_number, "PATH", versions / "layout")
    monkeypatch.setenv("OWN", str(root / "own"))
    for name, text in {
        "build/versions/1/onnx/model.onnx": "a network" * 1000,
        "build/versions/1/models/resnet50_onnx/model.onnx": "a network" * 1000,
        "build/versions/history.jsonl": "",
        "build/versions/.draft/half": "half",
        "own/recipes/birds.yaml": "birds",
        "recipes/resnet50.yaml": "the bundle's",
        ".env": "ARCH=resnet18\nCOMPOSE_PROJECT_NAME=checkout-1  # written by make\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def read(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_was_saved_comes_back_elsewhere(here: Path, tmp_path: Path) -> None:
    file = tmp_path / "monday.tar"
    saved = backup.save(file, "0.1.0", "")
    assert file.stat().st_mode & 0o777 == 0o600 and saved.keys is None
    with tarfile.open(file) as tar:  # equal contents once, nothing unfinished
        assert len(tar.getnames()) == len({*tar.getnames()}) == 2 + 5
    before = read(here)
    for path in (here / "own", here / "build", here / ".env"):
        path.rename(tmp_path / path.name)
    (here / "recipes" / "resnet50.yaml").write_text("a newer bundle's")
    assert backup.restore(backup.verified(file)) == ["recipes/resnet50.yaml"]
    after = read(here)
    assert before.pop("build/versions/.draft/half")
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"recipes/resnet50.yaml", ".env"} and after.keys() == before.keys()
    assert after[".env"] == "ARCH=resnet18\n"
    twice = [here / "build/versions/1" / name for name in ("onnx", "models/resnet50_onnx")]
    assert (twice[0] / "model.onnx").samefile(twice[1] / "model.onnx")


def test_settings_that_were_there_are_kept_aside(here: Path, tmp_path: Path) -> None:
    backup.save(tmp_path / "monday.tar", "0.1.0", "")
    (here / ".env").write_text("ARCH=mine\n")
    backup.restore(backup.verified(tmp_path / "monday.tar"))
    assert (here / ".env.before").read_text() == "ARCH=mine\n"


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "cut off":
        content = content[: len(content) // 2]
    elif how == "a bit":
        content[content.index(b"a network")] ^= 1
    elif how == "index":
        content[content.index(b"history.jsonl")] ^= 1
    else:
        content = bytearray(b"no backup at all")
    file.write_bytes(content)


@pytest.mark.parametrize("how", ["cut off", "a bit", "index", "another file"])
def test_a_damaged_one_is_refused(here: Path, tmp_path: Path, how: str) -> None:
    file = tmp_path / "monday.tar"
    backup.save(file, "0.1.0", "")
    damage(file, how)
    with pytest.raises(UserError, match=r"monday\.tar is damaged") as refused:
        backup.verified(file)
    assert "nothing has been changed" in refused.value.remedy


def test_a_file_outside_is_refused(here: Path, tmp_path: Path) -> None:
    """Somebody else's backup may be made with care."""
    index = {name: EMPTY for name in ("versions/layout", "versions/../../evil")}
    text = json.dumps({"bundle": "0.1.0", "made": "", "layout": 1, "files": index}).encode()
    contents = {
        "backup.json": text,
        "backup.json.sha256": hashlib.sha256(text).hexdigest().encode(),
        f"contents/{EMPTY}": b"",
    }
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(UserError, match="which no backup does"):
        backup.verified(tmp_path / "evil.tar")


def test_keys_are_opened_by_their_passphrase_alone(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = here / "build" / "key" / "admin.key"
    monkeypatch.setattr(sealed, "ROOT", here)
    monkeypatch.setattr(sealed, "FOLDERS", (key.parent, here / "build" / "tls"))
    key.parent.mkdir()
    key.write_text("secret" * 8)
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "correct horse")
    assert saved.keys and b"secret" not in (tmp_path / "monday.tar").read_bytes()
    key.unlink()
    with pytest.raises(UserError, match="cannot be decrypted"):
        sealed.opened(saved.keys, "wrong horse")
    sealed.unseal(saved.keys, "correct horse")
    assert key.read_text() == "secret" * 8 and key.stat().st_mode & 0o777 == 0o600


def test_a_passphrase_does_not_stand_in_the_process_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSPHRASE", "correct horse")
    assert arguments.passphrase() == "correct horse"
    monkeypatch.setenv("MAKEFLAGS", " -- PASSPHRASE=correct\\ horse TO=x")
    with pytest.raises(UserError, match="everybody on this machine"):
        arguments.passphrase()


def test_versions_of_a_newer_bundle_are_refused(here: Path, tmp_path: Path) -> None:
    assert layout_number.here() == 0  # of bundles without the number
    layout_number.write()
    assert layout_number.here() == layout_number.NUMBER
    layout_number.require_known(layout_number.here())
    with pytest.raises(UserError, match=r"newer bundle \(layout 99"):
        layout_number.require_known(99)
    layout_number.PATH.write_text("99\n")
    assert backup.save(tmp_path / "newer.tar", "9.0", "").index.layout == 99
