"""What is kept, what goes, and what a machine refuses, without a server."""

import errno
import json
import os
import re
import tempfile
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from bundle_serving.process import processes
from scripts.base import disk, files
from scripts.base.errors import UserError, of_the_machine, reword_faults, run_guarded
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history, live, place
from scripts.repository.shared import Shared
from scripts.server import loaded_beside
from scripts.server.triton import models
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import state
from tests.project import Project


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    return tmp_path / "versions"


def publish(network: str) -> int:
    first = pipelines.main()
    contents = {"preprocessing": {"model.py": "x"}, "resnet50_onnx": {"model.onnx": network}}
    seed = archive.load(first, numbers[-1]) if (numbers := archive.numbers(first)) else None
    with archive.draft(first, seed) as draft:
        number = archive.keep(draft, contents, DEFAULTS, first, seed).number
    history.add(first, history.PUBLISHED, number, "publish")
    return number


def trim(keep: int) -> None:
    Shared(Settings(DEFAULTS), pipelines.main()).trim(keep, "publish")


def test_thirty_publishes_leave_a_folder_of_bounded_size(here: Path) -> None:
    first, sizes = pipelines.main(), []
    for number in range(1, 31):
        assert publish(f"{number:02}" * 100_000) == number
        if number in (1, 2):
            history.add(first, history.SERVES, number, "rollout")
        trim(3)
        sizes.append(disk.measure_occupied([here]))
    assert archive.numbers(first) == [1, 2, 28, 29, 30]  # the live one, the one before it, three
    # The history grows by a line.
    assert max(sizes[9:]) < 1.1 * sizes[9]
    lines = [history.describe(event) for event in history.read(first)]
    assert "version 3 removed (publish)" in lines and history.serving(history.read(first)) == 2


def test_of_a_pipeline_that_was_removed_the_door_tells_nothing(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, other = pipelines.main(), Pipeline("pets", pipelines.others()[0].source)
    for pipeline in (main, other):
        history.add(pipeline, history.SERVES, 1, "up")
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    monkeypatch.setattr(state, "load", lambda: None)
    monkeypatch.setattr(loaded_beside, "unload", Mock())
    import_module("scripts.commands.serve.remove_model").remove(other)
    assert json.loads((live.REPOSITORY / history.SHOWN).read_bytes()).keys() == {main.ensemble}


def test_of_versions_that_rollouts_have_replaced_make_models_says_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A year of them would be a row each."""
    gone = (models.Model("m", str(number), "UNAVAILABLE", "unloaded") for number in range(1, 9))
    kept = [models.Model("m", "9", "READY"), models.Model("mine", "1", "UNAVAILABLE", "unloaded")]
    (live.REPOSITORY / "mine" / "1").mkdir(parents=True)
    monkeypatch.setattr(state, "require", Mock)
    monkeypatch.setattr(models, "list_needed", set)
    monkeypatch.setattr(models, "index", lambda _: [*gone, *kept])
    import_module("scripts.commands.serve.models").main()
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [["m", "9"], ["mine", "1"]]


def test_what_could_not_be_uploaded_stays_in_the_history(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a rollout that has ended would be one that was cut off."""
    first, stored, wont = pipelines.main(), dict[str, bytes](), UserError("S3 is busy", "")
    there: Any = SimpleNamespace(
        list=lambda _: [], read=stored.get, write=stored.__setitem__, location="S3"
    )
    monkeypatch.setattr(place, "open_folder", lambda _: SimpleNamespace(archive=there))
    shared = Shared(Settings(DEFAULTS), first)
    shared.record(history.BEGINS, 2, "rollout")
    there.write = Mock(side_effect=wont)
    with pytest.raises(UserError):
        shared.record(history.SERVES, 2, "rollout")
    shared.pull()
    assert history.serving(history.read(first)) == 2
    there.write = stored.__setitem__
    shared.push_history()
    stored[history.NAME] += stored[history.NAME].splitlines(keepends=True)[0]
    shared.pull()  # another machine's
    assert [event.what for event in history.read(first)] == ["begins", "serves", "begins"]
    assert not capsys.readouterr().out
    serves = stored[history.NAME].splitlines(keepends=True)[1]
    stored[history.NAME] += serves.replace(b'"version": 2', b'"version": 3')
    shared.pull()
    said = "by history.jsonl at S3, version 3 is live, and no longer version 2\n"
    assert capsys.readouterr().out == f"- {said}"
    history.path(first).write_text("damaged")
    shared.pull()
    assert history.serving(history.read(first)) == 3


def test_what_another_machine_has_recorded_meanwhile_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during `make eval`, or between a rollout's beginning and its end."""
    first, stored = pipelines.main(), dict[str, bytes]()
    away = Mock(side_effect=UserError("S3 does not answer", ""))
    there: Any = SimpleNamespace(read=away, write=stored.__setitem__, location="S3")
    monkeypatch.setattr(place, "open_folder", lambda _: SimpleNamespace(archive=there))
    shared = Shared(Settings(DEFAULTS), first)
    with pytest.raises(UserError):
        shared.begin(1, "up")
    assert history.cut_off(history.read(first)) is None  # nothing was
    there.read, there.write = stored.get, away
    with pytest.raises(UserError):
        shared.begin(1, "up")
    assert history.cut_off(history.read(first)) is None
    history.path(first).unlink()
    there.write = stored.__setitem__
    shared.record(history.SERVES, 1, "up")
    before = history.path(first).read_bytes()
    shared.record(history.SERVES, 2, "rollout")  # on another machine
    history.path(first).write_bytes(before)
    shared.record(history.EVALUATED, 1, "eval")
    assert [event.what for event in history.read(first)] == ["serves", "serves", "evaluated"]
    assert stored[history.NAME] == history.path(first).read_bytes()


def test_a_version_that_another_machine_has_published_meanwhile_is_not_replaced(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have taken the next number; that of the other may be rolled out already."""
    first, stored = pipelines.main(), dict[str, bytes]()
    there: Any = SimpleNamespace(read=stored.get, mirror=Mock(), prefix="")
    monkeypatch.setattr(place, "open_folder", lambda _: SimpleNamespace(archive=there))
    shared, version = Shared(Settings(DEFAULTS), first), archive.load(first, publish("mine"))
    shared.push_version(version)
    record = version.record | {"evaluated": {"right": 9}}  # of the same
    for hashes, is_refused in ((version.hashes, False), ({"theirs": {}}, True)):
        stored["1/version.json"] = json.dumps(record | {"hashes": hashes}).encode()
        there.mirror.reset_mock()
        with pytest.raises(UserError, match="another machine's") if is_refused else nullcontext():
            shared.push_version(version)
        assert there.mirror.called != is_refused
    stored["1/version.json"] = b"[]"
    with pytest.raises(UserError, match=r"1/version\.json in the shared archive cannot be read"):
        shared.push_version(version)


def test_an_earlier_version_that_is_published_again_stays(here: Path) -> None:
    for network in ("one", "two", "three", "four"):
        publish(network)
    assert publish("one") == 1
    trim(1)
    assert archive.numbers(pipelines.main()) == [1, 4]


def test_old_reports_go_also_before_there_is_a_version(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, FLAVOUR="local")
    for name, days in (("bench/old", 31), ("eval/old", 31), ("eval/new", 29)):
        (report := project.path / "build" / name).mkdir(parents=True)
        os.utime(report, (at := time.time() - days * 86_400, at))
    files.write(project.path / "build/live/birds/1/.model.onnx.12.tmp", "")
    files.write(project.path / "build/bench/.20261101T030000Z.12.tmp/results.json", "")
    lines = [line for line in project.made("prune").splitlines() if "build/" in line]
    rows = [re.split(" {2,}", line.strip())[2:] for line in lines]
    old = "older than 30 days"
    left = "build/bench/.20261101T030000Z.12.tmp", "build/live/birds/1/.model.onnx.12.tmp"
    assert rows == [
        *(["build/bench/old", old], ["build/eval/new"], ["build/eval/old", old]),
        *([each, "a killed command left it"] for each in left),
    ]


def test_versions_are_looked_at_once_for_all_reports(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else after a year of them `make prune` takes a minute."""
    prune = import_module("scripts.commands.operate.prune")
    for name, value in (("BUILD", tmp_path), ("ROOT", tmp_path), ("_images", lambda _: iter(()))):
        monkeypatch.setattr(prune, name, value)
    monkeypatch.setattr(prune.engines, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pipelines, "others", list)
    publish("one")
    for number in range(9):
        (tmp_path / "bench" / str(number)).mkdir(parents=True)
    look = Mock(wraps=disk.identify_files)
    monkeypatch.setattr(disk, "identify_files", look)
    assert len([*prune.find_items(Settings(DEFAULTS), 30)]) > 9 and look.call_count == 2


def test_a_file_with_two_names_takes_room_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(b"x" * 100_000)
    alone = disk.measure_occupied([tmp_path])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "two").hardlink_to(tmp_path / "a" / "one")
    assert disk.measure_occupied([tmp_path]) == alone
    assert disk.measure_occupied([tmp_path / "b"], disk.identify_files([tmp_path / "a"])) == 0


def test_room_is_asked_for_before_work_begins(tmp_path: Path) -> None:
    disk.require_room(tmp_path / "not" / "there", 1, "export")
    with pytest.raises(UserError, match=r"export needs 1000000000000 MB, and .* has \d+ MB left"):
        disk.require_room(tmp_path / "not" / "there", 10**12, "export")


class TheirError(Exception):
    """Another package's."""


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make prune"),
        (errno.EROFS, "written to"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EACCES, "owns"),
        (errno.E2BIG, "fewer files"),
        (errno.ENAMETOOLONG, "name another"),
        (errno.ENOTDIR, "name another"),
        (errno.EEXIST, "name another"),
    ],
)
def test_what_a_machine_refuses_is_one_line(
    number: int, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def plainly() -> int:
        raise OSError(number, os.strerror(number), "/some/file")

    def wrapped() -> int:
        try:
            return plainly()
        except OSError as fault:
            raise TheirError("failed to write") from fault

    def in_words() -> int:
        raise TheirError(f"I/O error: {os.strerror(number)} (os error {number})")

    for failing in (plainly, wrapped, in_words):
        assert run_guarded(failing) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and os.strerror(number).lower() in line
        assert remedy in line and ("/some/file" in line) == (failing is not in_words)
        assert bool(re.search(r"disk at \S+ has \d+ MB left of \d+\)", line)) == (
            number == errno.ENOSPC
        )


def test_a_disk_that_is_full_for_temporary_files_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write() -> int:
        return len(tempfile.mkdtemp())

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile._os, "open", is_full)  # type: ignore[attr-defined]
    for failing, said in ((write, "no folder takes temporary files"), (is_full, "no space left")):
        assert run_guarded(failing) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {said}") and "make room" in line
        assert re.search(r"disk at \S+ has \d+ MB left", line)


def test_a_fault_of_another_package_is_one_line() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for fault, said in (
        (
            RuntimeError("no\n such key. See the log"),
            "it cannot be read: no such key; save it again",
        ),
        (UserError("its own", "words"), "its own; words"),
        (full, "no space left on device"),
    ):
        with (
            pytest.raises(UserError) as refusal,
            reword_faults("it cannot be read", "save it again"),
        ):
            raise fault
        assert f"{refusal.value.cause}; {refusal.value.remedy}".startswith(said)


def test_what_is_no_machines_fault_keeps_its_traceback() -> None:
    def wrong() -> int:
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="mistake"):
        run_guarded(wrong)
    assert of_the_machine(FileNotFoundError(errno.ENOENT, "no such file")) is None


def test_a_process_began_at_the_same_time_for_as_long_as_it_runs() -> None:
    began = processes.began(os.getpid())
    assert began == processes.began(os.getpid()) != processes.began(1)
    assert began.startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
