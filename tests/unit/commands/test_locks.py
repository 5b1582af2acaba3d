"""Who can hold up a command, or the keeper, and for how long."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from bundle_door.access import key_file
from scripts.base import lock as locks
from scripts.base.errors import UserError
from scripts.base.lock import find_holder, hold_lock, private
from scripts.repository import own_pipelines
from scripts.server import own_main
from scripts.settings.settings import DEFAULTS, Settings

# As somebody else: which of these files can be locked.
INTRUDER = """
import fcntl, sys
for path in sys.argv[1:]:
    try:
        fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(path)
    except OSError:
        pass
"""


@pytest.fixture
def open_to_others(tmp_path: Path) -> Path:
    """Somebody else can go there."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path


def nobody_can_lock(*paths: Path) -> None:
    assert all(path.stat().st_mode & 0o077 == 0 for path in paths)
    if os.getuid() == 0:
        intruded = subprocess.run(
            ["/usr/bin/python3", "-c", INTRUDER, *paths],
            user="nobody",
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert (intruded.returncode, intruded.stdout) == (0, "")


def test_nobody_else_can_lock_what_commands_wait_for(open_to_others: Path) -> None:
    lock, off = open_to_others / "lock", open_to_others / "hands-off"
    lock.touch(0o644)  # as earlier ones were made
    with hold_lock(lock, lambda _: None), locks.hands_off(off):
        assert lock.read_text() == off.read_text().strip() == f"process {os.getpid()}"
    nobody_can_lock(lock, off)
    assert private(off, container=off.stat().st_gid).stat().st_mode & 0o777 == 0o640


def test_a_wait_for_another_command_has_an_end(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    told: list[str] = []
    refused = pytest.raises(UserError, match=f"process {os.getpid()} has held .*/lock")
    assert find_holder(lock) == ""
    with hold_lock(lock, told.append), refused, hold_lock(lock, told.append, longest_s=0.3):
        pass
    with hold_lock(lock, told.append):
        assert find_holder(lock) == f"process {os.getpid()}"
    assert find_holder(lock) == ""
    assert told == [f"process {os.getpid()}"]
    with hold_lock(lock, told.append):
        waiting = threading.Thread(target=lambda: hold_lock(lock, told.append).__enter__())
        waiting.start()
    waiting.join(60)
    assert not waiting.is_alive() and len(told) <= 2


def test_a_key_is_revoked_while_another_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Path] = []

    @contextlib.contextmanager
    def hold(path: Path, _: object) -> Iterator[None]:
        held.append(path)
        yield

    command = import_module("scripts.commands.operate.keys")
    keys = tmp_path / "api.keys"
    key_file.add(keys, key_file.Client("ann"))
    monkeypatch.setattr(command, "KEYS", keys)
    monkeypatch.setattr(locks, "hold_lock", hold)
    monkeypatch.setenv("REVOKE", "ann")
    assert command.main() == 0
    assert key_file.read(keys) == {}
    assert held == [locks.OF_KEYS] != [locks.OF_CHANGES]


class Stopped(Exception):
    pass


def test_who_adds_a_pipeline_looks_for_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else of two at once, the one that fails would remove what the other one wrote."""
    held: list[Path] = []

    @contextlib.contextmanager
    def hold(path: Path, _: object) -> Iterator[None]:
        held.append(path)
        yield
        held.remove(path)

    def look(*_: object) -> bool:
        assert held == [locks.OF_ADDITIONS]
        raise Stopped

    monkeypatch.setattr(locks, "hold_lock", hold)
    monkeypatch.setattr(own_pipelines, "require_unused", look)
    monkeypatch.setattr(own_main, "_is_made_of", look)
    monkeypatch.setenv("NAME", "birds")
    network = {"FROM": "birds.onnx", "NAME": "birds"}
    for add in (
        import_module("scripts.commands.serve.add_model").main,
        lambda: own_main.bring_up(Settings(DEFAULTS), typed=network),
    ):
        held.clear()
        with pytest.raises(Stopped):
            add()
