"""Where the sockets of a server lie, and that nobody else can reach them."""

import tempfile
from pathlib import Path

import pytest

from bundle_serving.process import sockets


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / ("a-long-name-" * 9) / "run"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_folder_is_private_and_found_again(tmp_path: Path) -> None:
    made = sockets.folder(tmp_path / "run")
    assert made == tmp_path / "run" / "sockets" and mode(made) == 0o700
    assert sockets.folder(tmp_path / "run") == made


def test_a_long_path_gets_a_short_folder_that_is_found_again(
    deep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "until-logout"))
    made = sockets.folder(deep)
    assert made.parent == tmp_path and mode(made) == 0o700
    assert sockets.folder(deep) == made


def test_a_short_folder_that_is_gone_is_made_again(deep: Path) -> None:
    sockets.folder(deep).rmdir()
    assert sockets.folder(deep).is_dir()


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir(mode=0o755)
    with pytest.raises(sockets.NotPrivate, match="only this user"):
        sockets.folder(tmp_path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "sockets").symlink_to("other")
    with pytest.raises(sockets.NotPrivate, match="only this user"):
        sockets.folder(tmp_path)


def test_the_folder_goes_with_its_server(tmp_path: Path) -> None:
    """A later one may be of another user."""
    (sockets.folder(tmp_path) / sockets.METRICS).touch()
    sockets.forget(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_short_folder_goes_with_its_server(deep: Path) -> None:
    made = sockets.folder(deep)
    (made / sockets.METRICS).touch()
    sockets.forget(deep)
    assert not made.exists() and list(deep.iterdir()) == []
    sockets.forget(deep)  # nothing is left to do


def test_what_another_wrote_into_the_note_is_not_removed(deep: Path, tmp_path: Path) -> None:
    """As a network's program could that a container lets write to build/."""
    checkout = tmp_path / "triton-bundle-1.2"
    checkout.mkdir(mode=0o755)
    deep.mkdir(parents=True)
    (deep / sockets.ELSEWHERE).write_text(str(checkout))
    sockets.forget(deep)
    assert checkout.is_dir() and not list(deep.iterdir())
