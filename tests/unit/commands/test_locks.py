"""Who can hold up a command, or the keeper, and for how long."""

import contextlib
import errno
import os
import pwd
import subprocess
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from bundle_door.access import key_file
from scripts.artefacts.workspace import Workspace
from scripts.base import lock as locks
from scripts.base import reader
from scripts.base.disk import Item as Prunable
from scripts.base.errors import UserError
from scripts.base.lock import find_holder, hold_lock, private
from scripts.evaluation.labelled import Item
from scripts.recipes import pipelines
from scripts.repository import own_pipelines, place
from scripts.server import engines, evaluating, own_main, up
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import flavour, state
from scripts.stacks.state import State

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
def open_to_others() -> Iterator[Path]:
    """Somebody else can go there, as not to pytest's folders."""
    with TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def nobody_can_lock(*paths: Path) -> None:
    assert all(path.stat().st_mode & 0o077 == 0 for path in paths)
    if os.getuid() == 0:
        (free := paths[0].with_name("free")).touch()
        free.chmod(0o644)
        intruded = subprocess.run(
            ["/usr/bin/python3", "-c", INTRUDER, free, *paths],
            user="nobody",
            capture_output=True,
            text=True,
            cwd="/",
        )
        assert (intruded.returncode, intruded.stdout) == (0, f"{free}\n")


def test_nobody_else_can_lock_what_commands_wait_for(
    open_to_others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, off = open_to_others / "lock", open_to_others / "hands-off"
    lock.touch(0o644)  # as earlier ones were made
    with hold_lock(lock, lambda _: None), locks.hands_off(off):
        assert lock.read_text() == off.read_text().strip() == f"process {os.getpid()}"
    nobody_can_lock(lock, off)
    monkeypatch.setattr(reader, "READER", off.stat().st_gid)
    assert private(off, for_containers=True).stat().st_mode & 0o777 == 0o640


def test_a_lock_in_a_folder_of_others_is_refused_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: int) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(PermissionError), hold_lock(tmp_path / "lock", lambda _: None):
        pass


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("{user}:100000:65536\n", 165531),
        ("other:100000:65536\n{user}:200000:1000\n{user}:300000:65536\n", 364531),
        ("{user}:100000:65000\n", None),
        ("other:100000:65536\n", None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_a_rootless_engines_group_has_another_number(
    given: str | None, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "GIVEN", file := tmp_path / "subgid")
    if given:
        file.write_text(given.format(user=pwd.getpwuid(os.getuid()).pw_name))
    assert reader._find_in_rootless() == number


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


def test_who_waits_gets_it_when_it_is_free(tmp_path: Path) -> None:
    lock, got = tmp_path / "lock", list[bool]()
    is_waiting, is_free = threading.Event(), threading.Event()

    def wait() -> None:
        with hold_lock(lock, lambda _: is_waiting.set()):
            got.append(is_free.is_set())

    with hold_lock(lock, lambda _: None):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert is_waiting.wait(60)
        is_free.set()
    waiting.join(60)
    assert got == [True]


def test_a_lock_that_was_removed_meanwhile_is_none(tmp_path: Path) -> None:
    lock, refused = tmp_path / "lock", list[UserError]()
    is_waiting = threading.Event()

    def wait() -> None:
        try:
            with hold_lock(lock, lambda _: is_waiting.set()):
                pass
        except UserError as fault:
            refused.append(fault)

    with hold_lock(lock, lambda _: None):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert is_waiting.wait(60)
        lock.unlink()
    waiting.join(60)
    assert "was removed meanwhile, as make clean does" in refused[0].cause
    with hold_lock(lock, lambda _: None):
        pass


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
    command.main()
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


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The locks that are held at the moment."""
    found: list[Path] = []

    @contextlib.contextmanager
    def hold(path: Path, _: object) -> Iterator[None]:
        found.append(path)
        try:
            yield
        finally:
            found.remove(path)

    monkeypatch.setattr(locks, "hold_lock", hold)
    return found


@pytest.mark.parametrize("command", ["serve.load", "serve.unload", "operate.scale"])
def test_what_changes_the_server_looks_at_it_alone(
    held: list[Path], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Which servers there are, and with which versions, another command may just be changing."""

    def look() -> None:
        assert held == [locks.OF_CHANGES]
        raise Stopped

    for name in ("load", "require"):
        monkeypatch.setattr(state, name, look)
    with pytest.raises(Stopped):
        import_module(f"scripts.commands.{command}").main()
    with pytest.raises(Stopped):
        up.bring_up_beside(pipelines.main())


def test_a_place_that_is_gone_is_not_left_for_triton_to_look_for(
    held: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = Mock(**{"require_reachable.side_effect": UserError("S3 does not answer", "")})
    monkeypatch.setattr(place, "find", lambda _: elsewhere)
    monkeypatch.setattr(state, "require", Mock)
    monkeypatch.setenv("TRITON_MODEL", "resnet50_onnx")
    with pytest.raises(UserError, match="S3 does not answer"):
        import_module("scripts.commands.serve.load").main()


def test_who_removes_a_pipeline_looks_at_it_alone(
    held: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command may be making it the main one, adding it, or removing it."""

    def look(*_: object) -> None:
        assert held == [locks.OF_ADDITIONS, locks.OF_CHANGES]
        raise Stopped

    command = import_module("scripts.commands.serve.remove_model")
    monkeypatch.setenv("NAME", "birds")
    there = iter([{"birds": Path()}, {}, {"birds": Path()}, {"birds": Path()}])
    monkeypatch.setattr(pipelines, "of_the_user", lambda: next(there))
    monkeypatch.setattr(pipelines, "find_pipeline", look)
    with pytest.raises(UserError, match="NAME=birds is not a pipeline of yours"):
        command.main()
    with pytest.raises(Stopped):
        command.main()


def test_the_step_that_asks_the_original_runs_alone(
    held: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container of an image of which there is one."""

    def run_step(*_: object) -> None:
        assert held == [locks.OF_CHANGES]
        raise Stopped

    recipe = SimpleNamespace(ask_original=lambda *_: SimpleNamespace(step="", words=()))
    version: Any = SimpleNamespace(
        pipeline=SimpleNamespace(recipe=recipe), workspace=Workspace(Path())
    )
    monkeypatch.setattr(evaluating, "settings_of", lambda *_: None)
    monkeypatch.setattr(flavour, "stack", lambda *_: SimpleNamespace(run_step=run_step))
    items = [Item("a.jpg", "a", Path("val/a.jpg"))]
    data = evaluating.Data(Path("val"), items, 0, ["a"], np.zeros(1, np.int64))
    with pytest.raises(Stopped):
        evaluating.ask_original(State("cpu", "", {}), version, data)


def test_one_command_at_a_time_fetches_pytorch(
    held: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a folder where what others have begun counts as left by a killed one."""

    def fetch(_: object) -> None:
        assert held == [locks.OF_CHANGES]
        raise Stopped

    command = import_module("scripts.commands.operate.images")
    for name in ("why_not_docker", "serving"):
        monkeypatch.setattr(command, name, lambda *_: None)
    monkeypatch.setattr(command, "DockerStack", lambda _: SimpleNamespace(prepare_place=fetch))
    monkeypatch.setattr(engines, "needs_pytorch", lambda *_: True)
    with pytest.raises(Stopped):
        command.main()


def test_the_history_is_not_pulled_while_another_command_adds_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which would be lost: what is there is older."""
    command, pulled = import_module("scripts.commands.versions.history"), list[str]()
    shared = SimpleNamespace(pull=lambda: pulled.append("again"))
    monkeypatch.setattr(command, "Shared", lambda *_: shared)
    monkeypatch.setattr(command.state, "settings_in_use", lambda: None)
    monkeypatch.setattr(command.history, "read", lambda _: [])
    for holder in ("", "process 1"):
        monkeypatch.setattr(locks, "find_holder", lambda _, holder=holder: holder)
        with pytest.raises(UserError, match="nothing has been served here yet"):
            command.main()
    assert len(pulled) == 1


def test_nobody_waits_for_the_answer_of_who_prunes(
    held: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is needed by then stays."""
    command, removed = import_module("scripts.commands.operate.prune"), list[str]()

    def make_item(what: str, why: str) -> Prunable:
        assert held == [locks.OF_CHANGES]
        return Prunable(what, 1, 1, why, lambda: removed.append(what))

    def ask(_: str) -> bool:
        assert not held
        return True

    first = {"version 1": "old", "version 2": "old", "version 3": ""}
    looks = iter([first, first | {"version 2": ""}])
    monkeypatch.setattr(
        command, "find_items", lambda *_: [make_item(*each) for each in next(looks).items()]
    )
    monkeypatch.setattr(command, "_ask_consent", ask)
    command.main()
    assert removed == ["version 1"]


def test_a_command_does_not_wait_for_itself(tmp_path: Path) -> None:
    """`make add-model` may have to start a server, of the FROM= in .env, which adds a pipeline."""
    path = tmp_path / "lock"
    with locks.one_at_a_time(path):
        with locks.one_at_a_time(path):
            assert find_holder(path)
        assert find_holder(path)
    assert not find_holder(path)
    with locks.one_at_a_time(path):  # again, and not only by name
        assert find_holder(path)


def test_who_may_not_open_a_lock_can_still_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make history` in a colleague's checkout, or in one that nobody may write to."""
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError))
    assert not find_holder(tmp_path / "lock")
