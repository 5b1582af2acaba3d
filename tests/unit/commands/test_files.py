import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from bundle_door.access import key_file
from bundle_door.access.key_file import Client
from scripts.base import disk, files
from scripts.base.errors import OTHER, UserError
from scripts.stacks import admin_key, containers, exposure


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(tmp_path / "file", "first")
    monkeypatch.setattr(Path, "chmod", Mock(side_effect=OSError(errno.ENOSPC, "no space left")))
    with pytest.raises(OSError):
        files.write(tmp_path / "file", "second")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "first"


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


def test_what_is_made_readable_is_not_what_links_lead_to(tmp_path: Path) -> None:
    (secret := tmp_path / "secret").write_text("")
    secret.chmod(0o600)
    (folder := tmp_path / "folder").mkdir(0o700)
    (folder / ".#model.py").symlink_to("ann@here.12:3")  # as Emacs locks a file
    (folder / "link").symlink_to(secret)
    (program := folder / "model.py").write_text("")
    program.chmod(0o600)
    files.let_all_read(folder)
    modes = [each.stat().st_mode & 0o777 for each in (secret, folder, program)]
    assert modes == [0o600, 0o755, 0o644]


def test_root_gives_links_away_and_not_what_they_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step, which may be a program of somebody else's, writes there as another user."""
    given: list[str] = []
    (there := tmp_path / "disk").mkdir()
    (build := tmp_path / "build").symlink_to(there)
    (build / "link").symlink_to(tmp_path)
    (build / "gone").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(containers, "ROOT", tmp_path)
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "none")
    monkeypatch.setattr(exposure, "FOLDER", tmp_path)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "lchown", lambda path, *_: given.append(path.name))
    monkeypatch.setattr(os, "chown", lambda path, *_: pytest.fail(f"{path} is followed"))
    containers._give(build)
    assert sorted(given) == ["cache", "disk", "gone", "link"]


def test_a_place_where_nothing_can_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for nowhere in (Path("/proc/none"), tmp_path / "file" / "new"):
        with pytest.raises(UserError) as refused:
            files.require_new(nowhere)
        assert refused.value.remedy == OTHER
    with pytest.raises(UserError, match=r"/file exists$"):
        files.require_new(tmp_path / "file")
    files.require_new(tmp_path / "new")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_what_goes_while_it_is_measured_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stays").write_bytes(b"x" * 5000)
    (tmp_path / "again").hardlink_to(tmp_path / "stays")
    size = disk.measure_occupied([tmp_path])
    assert size == 512 * (tmp_path / "stays").stat().st_blocks >= 5000
    found = [tmp_path / "stays", tmp_path / "gone"]
    monkeypatch.setattr(disk, "_files", lambda paths: found if paths else [])
    assert disk.measure_occupied([tmp_path]) == size
    assert disk.days_old(tmp_path) == 0
    found[:] = found[1:]
    assert disk.measure_occupied([tmp_path]) == disk.days_old(tmp_path / "gone") == 0


def test_a_copy_of_links_is_never_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cached export, say, whose labels would be missing from then on."""
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("labels.txt", "manifest.json", "deep/model.onnx"):
        files.write(source / name, name)
    files.write(target / "earlier", "")
    count = iter(range(2))

    def link(source: str, target: str) -> None:
        if next(count, None) is None:
            raise KeyboardInterrupt
        shutil.copyfile(source, target)

    with monkeypatch.context() as killed:
        killed.setattr(os, "link", link)
        with pytest.raises(KeyboardInterrupt):
            files.link_tree(source, target)
    assert [each.name for each in tmp_path.iterdir() if each != source] == ["target"]
    assert [each.name for each in target.iterdir()] == ["earlier"]
    files.link_tree(source, target)
    assert sorted(each.name for each in target.iterdir()) == ["deep", "labels.txt", "manifest.json"]
    assert (target / "deep/model.onnx").samefile(source / "deep/model.onnx")


def test_what_is_built_may_lie_on_another_disk(tmp_path: Path) -> None:
    for name in ("elsewhere", "build"):
        files.write(tmp_path / name / "versions" / "1" / "model", "")
        files.write(tmp_path / name / "lock", "")
        (tmp_path / name / "link").symlink_to(tmp_path)
    (link := tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for folder in (link, tmp_path / "build", tmp_path / "none"):
        files.empty(folder)
    assert link.is_symlink() and not any(link.iterdir())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["elsewhere", "link"]


def test_what_a_killed_command_had_put_aside_is_put_back(tmp_path: Path) -> None:
    """As all versions, in the moment in which a backup takes their place."""
    files.write(tmp_path / ".3.12.old.tmp" / "kept", "")
    files.write(tmp_path / ".4.old.tmp" / "removed", "")  # on purpose: repository/shared.py
    for name in ("3", "4"):
        with pytest.raises(KeyboardInterrupt), files.whole_folder(tmp_path / name):
            raise KeyboardInterrupt
    left = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*"))
    assert left == ["3", "3/kept"]


def test_ctrl_c_while_a_folder_takes_anothers_place_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target := tmp_path / "versions").mkdir()
    (target / "history.jsonl").touch()
    rename = Path.rename

    def interrupted(self: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        rename(self, to)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), files.whole_folder(target):
        monkeypatch.setattr(Path, "rename", interrupted)
    assert [str(each.relative_to(tmp_path)) for each in sorted(tmp_path.rglob("*"))] == [
        "versions",
        "versions/history.jsonl",
    ]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write(path, "live", lasting=True),
        lambda path: key_file.add(path, Client("ann")),
    ],
)
def test_what_nothing_else_says_is_on_the_disk_before_it_takes_anothers_place(
    write: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure an empty history would say that nothing is live, and one from before
    would bring a revoked key back. Of folders, some file systems sync none."""
    synced, replace, file = list[str](), Path.replace, tmp_path / "folder" / "file"

    def noted(self: Path, to: Path) -> Path:
        synced.append("replaced")
        return replace(self, to)

    def fsync(descriptor: int) -> None:
        is_folder = Path(f"/proc/self/fd/{descriptor}").is_dir()
        synced.append("folder" if is_folder else "draft")
        if is_folder:
            raise OSError(errno.EINVAL, "invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", noted)
    write(file)
    assert synced == ["draft", "replaced", "folder"] and file.is_file()
