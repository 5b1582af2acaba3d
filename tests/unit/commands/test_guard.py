"""The admin key as a file, and what comes of a call that is not answered."""

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from bundle_serving.address import Address
from bundle_serving.process import guard
from scripts.base import files
from scripts.base.errors import UserError
from scripts.repository import place
from scripts.server.triton import triton_api
from scripts.server.triton.control import Control
from scripts.stacks import admin_key


def test_a_key_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    assert guard.read(tmp_path / "key") == "0123456789abcdef"


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"short", b"with a space in it", b"a=b:c,d=e:f,g=h:i", b"\xff" * 20]
)
def test_what_is_no_key_is_none(tmp_path: Path, content: bytes) -> None:
    """Triton would take an empty one, and a comma or a colon for a part of its option."""
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(guard.NoKey, match=r"key (contains no key|cannot be read)"):
        guard.read(tmp_path / "key")


def test_no_file_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(guard.NoKey, match="No such file"):
        guard.read(tmp_path / "key")


def test_a_secret_file_is_never_open_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes, chmod = list[int](), Path.chmod

    def look(path: Path, mode: int) -> None:
        modes.append(path.stat().st_mode & 0o777)
        chmod(path, mode)

    monkeypatch.setattr(Path, "chmod", look)
    files.write(tmp_path / "key", "secret", mode=0o600)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    files.write(tmp_path / "open", "public", mode=0o644)
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o644
    assert modes == [0o600, 0o600]  # while it was written


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "admin.key")
    return admin_key.ensure()


def test_the_key_is_made_once_and_for_its_owner(key: Path) -> None:
    made = key.read_text()
    key.chmod(0o644)
    before = admin_key.mark()
    assert admin_key.ensure().read_text() == made and len(made.strip()) == 64
    assert key.stat().st_mode & 0o777 == 0o600
    assert admin_key.mark() == before
    key.unlink()
    assert admin_key.ensure().read_text() != made and admin_key.mark() != before


@pytest.mark.parametrize("elsewhere", ["", "S3"])
def test_a_server_that_hangs_is_given_up(
    key: Path, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may only wait for S3, without which another one would not start."""
    found = SimpleNamespace(title=elsewhere) if elsewhere else None
    monkeypatch.setattr(place, "find", lambda _: found)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address(*silent.getsockname())
        with pytest.raises(UserError) as fault:
            triton_api.post(address, "/repository/index", timeout=0.3)
        with pytest.raises(UserError) as load:
            Control(address, 0.3).load("any")
    assert "/v2/repository/index within 0.3 s" in fault.value.cause
    assert "does not answer the load of any within 0.3 s" in load.value.cause
    assert "make down" in fault.value.remedy == load.value.remedy
    assert ("though S3 answers" in fault.value.remedy) == bool(elsewhere)


def test_a_server_that_is_gone_is_named(key: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = Address(*gone.getsockname())
    with pytest.raises(UserError) as fault:
        triton_api.get(address)
    assert str(address) in fault.value.cause and "refused" in fault.value.cause
