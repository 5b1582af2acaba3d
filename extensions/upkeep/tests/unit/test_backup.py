"""Backups: what is in one, and what is refused before anything is touched."""

import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from extensions.upkeep import arguments, backup, sealed
from extensions.upkeep.commands import restore
from scripts.base import files, paths
from scripts.base.errors import OTHER, UserError
from scripts.commands.operate import prune
from scripts.recipes import pipelines
from scripts.repository import archive, layout_number
from scripts.stacks import flavour, state


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


def test_what_users_edit_of_a_kind_comes_back_to_its_folder(here: Path, tmp_path: Path) -> None:
    config = "model_repository/film/config.pbtxt"
    for name, text in {"film.yaml": "mine", config: "mine", "recipe.py": "code"}.items():
        files.write(here / "kinds" / "film" / name, text)
    files.write(here / "recipes" / "film.yaml", "of an earlier release")
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    for folder in ("kinds", "recipes", "own", "build"):
        (here / folder).rename(tmp_path / folder)
    files.write(here / "kinds" / "film" / "film.yaml", "the bundle's")
    assert backup.restore(saved) == ["kinds/film/film.yaml"]
    assert {*read(here / "kinds")} == {"film/film.yaml", f"film/{config}"}


@pytest.mark.parametrize("earlier", ["recipes/resnet50.yaml", "kinds/image/resnet50.yaml"])
def test_the_main_recipe_of_an_earlier_release_is_not_put_elsewhere(
    earlier: str, here: Path, tmp_path: Path
) -> None:
    (here / "recipes").rename(tmp_path / "recipes")
    files.write(here / earlier, "edited")
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    (here / earlier).unlink()
    files.write(here / "model_repository" / "resnet50.yaml", "the bundle's")
    assert backup.restore(saved) == ["model_repository/resnet50.yaml"]
    assert not (here / earlier).exists()


def test_of_what_users_edit_a_copy_has_room_too(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "own" / "birds.onnx").write_bytes(bytes(3 << 20))
    files.write(here / "build" / "versions" / "1" / "onnx" / "large", "x" * (2 << 20))
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7 << 20))
    with pytest.raises(UserError, match="restoring needs 8 MB"):
        backup.restore(saved)


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
    assert backup.restore(backup.verify_backup(file)) == ["recipes/resnet50.yaml"]
    after = read(here)
    assert before.pop("build/versions/.draft/half")
    changed = {name for name in before if before[name] != after.get(name)}
    assert changed == {"recipes/resnet50.yaml", ".env"} and after.keys() == before.keys()
    assert after[".env"] == "ARCH=resnet18\n"
    twice = [here / "build/versions/1" / name for name in ("onnx", "models/resnet50_onnx")]
    assert (twice[0] / "model.onnx").samefile(twice[1] / "model.onnx")


def test_a_checkout_without_anything_of_its_own_comes_back(here: Path, tmp_path: Path) -> None:
    for name in (".env", "own", "recipes"):
        (here / name).rename(tmp_path / name)
    before = read(here)
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    (here / "build").rename(tmp_path / "build")
    assert backup.restore(saved) == []
    assert read(here).keys() == before.keys() - {"build/versions/.draft/half"}


def test_a_backup_that_fails_leaves_an_earlier_one(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no half of one, which has the settings' secrets too."""
    before = backup.save(tmp_path / "monday.tar", "0.1.0", "").path.read_bytes()
    files.write(here / "own" / "another", "")
    monkeypatch.setattr(backup, "verify_backup", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        backup.save(tmp_path / "monday.tar", "0.1.0", "")
    assert [path.name for path in tmp_path.iterdir() if path != here] == ["monday.tar"]
    assert (tmp_path / "monday.tar").read_bytes() == before


@pytest.mark.parametrize("agreed", [False, True])
def test_nothing_is_restored_under_a_server_that_runs(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agreed: bool
) -> None:
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    server = Mock(**{"alive.side_effect": [True, False]})
    monkeypatch.setattr(state, "load", lambda: "a server")
    monkeypatch.setattr(flavour, "stack_of", lambda _: server)
    monkeypatch.setattr(pipelines, "every", list)
    with pytest.raises(UserError, match="the server is running"):
        restore.require_nothing_is_lost(saved, {}, agreed)
    restore.require_nothing_is_lost(saved, {}, agreed)


def test_what_is_edited_after_a_restore_changes_no_version(here: Path, tmp_path: Path) -> None:
    """A network that was added lies in its version, too."""
    own = here / "own" / "networks" / "birds.onnx"
    files.write(own, "a network" * 1000)
    backup.save(tmp_path / "monday.tar", "0.1.0", "")
    own.unlink()
    restored(tmp_path / "monday.tar")
    own.write_text("another")
    version = here / "build" / "versions" / "1" / "onnx" / "model.onnx"
    assert version.read_text() == "a network" * 1000


def test_it_takes_the_place_of_an_earlier_one_alone(here: Path, tmp_path: Path) -> None:
    file, readme, pipe = (tmp_path / name for name in ("monday.tar", "README.md", "pipe"))
    half = tmp_path / ".monday.tar.1.tmp"
    half.write_text("of one that was killed")
    for _ in range(2):
        backup.save(file, "0.1.0", "")
    assert not half.exists()
    with pytest.raises(UserError, match="would be in the next backup"):
        backup.save(here / "own" / "monday.tar", "0.1.0", "")
    readme.write_text("read me")
    os.mkfifo(pipe)
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for taken in (readme, pipe, tmp_path, Path("/dev/full"), tmp_path / "lost"):
        with pytest.raises(UserError, match="exists, and is no backup"):
            backup.save(taken, "0.1.0", "")
    for nowhere in (readme / "x.tar", Path("/proc/none/x.tar"), tmp_path / ("x" * 300)):
        with pytest.raises(UserError) as refused:
            backup.save(nowhere, "0.1.0", "")
        assert refused.value.remedy == OTHER
    assert readme.read_text() == "read me" and pipe.is_fifo()


def test_what_a_killed_restore_leaves_can_be_pruned(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpack(_: backup.Backup, contents: Path) -> None:
        assert contents in (here / "build").glob(prune.PASSING)
        raise KeyboardInterrupt

    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    monkeypatch.setattr(backup, "_unpack", unpack)
    with pytest.raises(KeyboardInterrupt):
        backup.restore(saved)


def test_settings_that_were_there_are_kept_aside(here: Path, tmp_path: Path) -> None:
    backup.save(tmp_path / "monday.tar", "0.1.0", "")
    (here / ".env").write_text("ARCH=mine\n")
    for _ in range(2):  # the second one must not put aside what the first one wrote
        backup.restore(backup.verify_backup(tmp_path / "monday.tar"))
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
        backup.verify_backup(file)
    assert "nothing has been changed" in refused.value.remedy


def made_with_care(file: Path, *names: str, kind: bytes = tarfile.REGTYPE, env: str = "") -> Path:
    """Somebody else's backup: whole, with files of these names."""
    contents = {hashlib.sha256(text.encode()).hexdigest(): text for text in ("evil", env)}
    evil, settings = contents
    files = dict.fromkeys(("versions/layout", *names), evil) | {".env": settings}
    index = {"bundle": "0.1.0", "made": "", "layout": 1, "files": files}
    text = json.dumps(index)
    parts = {"backup.json": text, "backup.json.sha256": hashlib.sha256(text.encode()).hexdigest()}
    parts |= {f"contents/{name}": content for name, content in contents.items()}
    with tarfile.open(file, "w") as tar:
        for name, content in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
        if kind != tarfile.REGTYPE:
            member = tarfile.TarInfo(f"contents/{evil}")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    return file


def restored(file: Path) -> None:
    found = backup.verify_backup(file)
    backup.list_changed_own(found)
    backup.restore(found)


@pytest.mark.parametrize("top", ["versions", "own", "recipes", "model_repository", ".env", "", "x"])
@pytest.mark.parametrize(
    "name", ["{outside}/evil", "../../evil", "a/../../../evil", "", ".", "a//b", "a\\b", "a\0b"]
)
def test_a_file_outside_is_refused(here: Path, tmp_path: Path, top: str, name: str) -> None:
    """Before anything is touched."""
    before = read(tmp_path)
    name = f"{top}/{name.format(outside=tmp_path)}"
    file = made_with_care(tmp_path / "evil.tar", name)
    with pytest.raises(
        UserError, match=r"evil\.tar is damaged: .*, which no backup (does|contains)"
    ):
        restored(file)
    file.unlink()
    assert read(tmp_path) == before


def test_no_code_of_the_bundles_is_restored(here: Path, tmp_path: Path) -> None:
    code = "kinds/film/recipe.py", "kinds/film/serving/agreement_of_film.py"
    restored(made_with_care(tmp_path / "evil.tar", *code, "kinds/film/film.yaml"))
    assert {*read(here / "kinds")} == {"film/film.yaml"}


@pytest.mark.parametrize("top", ["own", "recipes", "model_repository"])
def test_a_link_to_outside_is_not_followed(here: Path, tmp_path: Path, top: str) -> None:
    (tmp_path / "outside").mkdir()
    (here / top).mkdir(exist_ok=True)
    (here / top / "link").symlink_to(tmp_path / "outside")
    (here / ".env").unlink()
    before = read(tmp_path)
    file = made_with_care(tmp_path / "evil.tar", f"{top}/link/evil")
    with pytest.raises(UserError, match=f"in .*/{top}, 'link/evil' leads elsewhere"):
        restored(file)
    file.unlink()
    assert read(tmp_path) == before


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_in_no_backup(here: Path, tmp_path: Path, kind: bytes) -> None:
    file = made_with_care(tmp_path / "evil.tar", kind=kind)
    with pytest.raises(UserError, match=r"evil\.tar is damaged: it is no backup"):
        backup.verify_backup(file)


@pytest.mark.parametrize("own", ["{outside}/home", "../home", ".git", ".", "~", "own/../.git"])
def test_settings_of_others_do_not_say_where_own_files_go(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = own.format(outside=tmp_path)
    file = made_with_care(tmp_path / "evil.tar", "own/hooks/evil", env=f"OWN={own}\n")
    before = read(tmp_path)
    with pytest.raises(UserError, match="its own folder would be written to") as refused:
        restored(file)
    assert read(tmp_path) == before and f"OWN={shlex.quote(own)}" in refused.value.remedy
    monkeypatch.setenv("OWN", own)  # named now
    monkeypatch.setattr(paths, "FOLDER", here)
    restored(file)
    place = (here / Path(own).expanduser()).resolve()
    assert (place / "hooks" / "evil").read_text() == "evil"


@pytest.mark.parametrize("index", ["[]", '{"files": []}', '{"files": {"versions/a": 1}}', "5"])
def test_an_index_of_another_form_is_refused(here: Path, tmp_path: Path, index: str) -> None:
    whole = {"bundle": "", "made": "", "layout": 1}
    text = json.dumps(whole | json.loads(index)) if index.startswith("{") else index
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        for content in (text, hashlib.sha256(text.encode()).hexdigest()):
            member = tarfile.TarInfo("backup.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    with pytest.raises(UserError, match=r"evil\.tar is damaged"):
        backup.verify_backup(tmp_path / "evil.tar")


def test_links_to_folders_are_named(here: Path, tmp_path: Path) -> None:
    files.write(tmp_path / "kinds" / "sum" / "recipe.py", "pass")
    (here / "own" / "kinds").symlink_to(tmp_path / "kinds")
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    assert not any("kinds/sum" in name for name in saved.index.files)
    assert backup.list_links() == [str(here / "own" / "kinds")]


def test_what_cannot_come_back_is_not_saved(here: Path, tmp_path: Path) -> None:
    (here / "own" / "a\\b").touch()
    with pytest.raises(UserError, match="cannot be in a backup"):
        backup.save(tmp_path / "monday.tar", "0.1.0", "")
    assert not (tmp_path / "monday.tar").exists()


@pytest.mark.parametrize("shared", [False, True])
def test_settings_are_for_those_who_work_here(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    backup.save(tmp_path / "monday.tar", "0.1.0", "")
    (here / ".env").write_text("ARCH=mine\n")
    monkeypatch.setattr(files, "is_shared", lambda: shared)
    restored(tmp_path / "monday.tar")
    for name in (".env", ".env.before"):
        assert (here / name).stat().st_mode & 0o777 == (0o660 if shared else 0o600)


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
        sealed.open_sealed(saved.keys, "wrong horse")
    sealed.unseal(sealed.open_sealed(saved.keys, "correct horse"))
    assert key.read_text() == "secret" * 8 and key.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def sealed_keys(here: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    folder = here / "build" / "key"
    monkeypatch.setattr(sealed, "ROOT", here)
    monkeypatch.setattr(sealed, "FOLDERS", (folder, here / "build" / "tls"))
    folder.mkdir()
    for name in ("admin.key", "api.keys", "capture.pem"):
        (folder / name).write_text("secret" * 200)
    return sealed.seal("correct horse")


def test_a_containers_door_reads_what_comes_back(sealed_keys: bytes, here: Path) -> None:
    """As another user: all but what `make up` hands over to it."""
    sealed.unseal(sealed.open_sealed(sealed_keys, "correct horse"))
    found = {path.name: path.stat().st_mode & 0o777 for path in (here / "build/key").iterdir()}
    assert found == {"admin.key": 0o600, "api.keys": 0o644, "capture.pem": 0o644}


def test_a_passphrase_may_be_of_any_bytes(sealed_keys: bytes) -> None:
    given = os.fsdecode(b"\xff\xfe")
    assert len(sealed.open_sealed(sealed.seal(given), given)) == 3


def test_damaged_keys_are_refused_before_anything_is_restored(sealed_keys: bytes) -> None:
    """Wherever a bit of them changes."""
    assert len(sealed.open_sealed(sealed_keys, "correct horse")) == 3
    for at in range(20, len(sealed_keys), len(sealed_keys) // 8):
        damaged = bytearray(sealed_keys)
        damaged[at] ^= 1
        with pytest.raises(UserError, match="or are damaged"):
            sealed.open_sealed(bytes(damaged), "correct horse")


def test_other_keys_are_replaced_only_if_asked(
    sealed_keys: bytes, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who got one since then is shut out, and one that was revoked since then is good."""
    monkeypatch.setattr(restore, "ROOT", here)
    monkeypatch.setattr(state, "load", lambda: None)
    monkeypatch.setattr(pipelines, "every", list)
    saved = backup.save(tmp_path / "monday.tar", "0.1.0", "")
    keys = sealed.open_sealed(sealed_keys, "correct horse")
    restore.require_nothing_is_lost(saved, keys, False)
    (here / "build" / "key" / "api.keys").write_text("ann …")
    with pytest.raises(UserError, match=r"replace what is here: build/key/api.keys$"):
        restore.require_nothing_is_lost(saved, keys, False)
    restore.require_nothing_is_lost(saved, keys, True)


def test_keys_of_an_earlier_bundle_are_opened(sealed_keys: bytes) -> None:
    """Which wrote no hash after them."""
    plain = sealed._openssl("correct horse", sealed_keys, "-d")[: -sealed.DIGEST]
    earlier = sealed._openssl("correct horse", plain)
    assert sealed.open_sealed(earlier, "correct horse") == sealed.open_sealed(
        sealed_keys, "correct horse"
    )


def test_a_passphrase_does_not_stand_in_the_process_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSPHRASE", "correct horse")
    assert arguments.load_passphrase() == "correct horse"
    monkeypatch.setenv("MAKEFLAGS", " -- PASSPHRASE=correct\\ horse TO=x")
    with pytest.raises(UserError, match="everybody on this machine"):
        arguments.load_passphrase()


@pytest.mark.parametrize("given", ["correct\nhorse", "horse" * 300])
def test_a_passphrase_that_openssl_would_cut_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSPHRASE", given)
    with pytest.raises(UserError, match="reads the first line alone"):
        arguments.load_passphrase()


def test_versions_of_a_newer_bundle_are_refused(here: Path, tmp_path: Path) -> None:
    assert layout_number.here() == 0  # of bundles without the number
    layout_number.write()
    assert layout_number.here() == layout_number.NUMBER
    layout_number.require_known(layout_number.here())
    with pytest.raises(UserError, match=r"newer bundle \(layout 99"):
        layout_number.require_known(99)
    layout_number.PATH.write_text("99\n")
    assert backup.save(tmp_path / "newer.tar", "9.0", "").index.layout == 99
