"""What is kept of requests: bounded, readable whatever happened, and encrypted where a key is."""

import asyncio
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
import weakref
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from bundle_door.answers import Answer, Refused, as_json
from bundle_door.limits import Limits, Load
from bundle_door.paths.candidates import Shadowing
from bundle_door.paths.capturing import Capturing
from bundle_door.requests import Note, Request
from bundle_door.served import Candidate
from bundle_door.settings import NOTHING, Keep, read_keep
from bundle_door.watching.captures import Captures, unseal
from bundle_door.watching.observed import Observed
from tests.project import wait_until

JPEG = b"\xff\xd8" + b"a picture" * 1000


def record(id: str) -> dict[str, object]:
    return {"id": id, "time": "2026-11-27T12:27:37+00:00", "path": "/classify", "labels": []}


def measure(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("", NOTHING),
        ("1%", Keep(percent=1)),
        ("0.5%, under:0.6", Keep(percent=0.5, under=0.6)),
        ("differs,key:shop", Keep(differs=True, keys=frozenset({"shop"}))),
        ("class:Song_Thrush,class:car", Keep(classes=frozenset({"song thrush", "car"}))),
    ],
)
def test_what_is_kept_is_read(text: str, keep: Keep) -> None:
    assert read_keep(text) == keep


@pytest.mark.parametrize("text", ["1", "0%", "101%", "x%", "under:", "under:2", "differ", "ip:1"])
def test_what_is_no_such_thing_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_keep(text)


def test_the_oldest_go_when_there_is_no_room(tmp_path: Path) -> None:
    most = 500_000
    captures, gone = Captures(tmp_path / "capture", most, 30), 0
    for number in range(200):
        gone += captures.write(record(str(number)), JPEG)
        assert measure(tmp_path) <= most
    kept = [each["id"] for each in captures.read()]
    assert kept == [str(number) for number in range(gone, 200)] and len(kept) > 40
    assert len([*tmp_path.rglob("*.jpg")]) == len(kept)
    with pytest.raises(OSError, match="too large for KEEP_MB"):
        captures.write(record("large"), bytes(most))


def test_of_many_lines_few_are_in_memory(tmp_path: Path) -> None:
    """While room is made: a day's lines may be as many as KEEP_MB has room for."""
    line = json.dumps(record("old") | {"head": 300 * "x"}).encode() + b"\n"
    day = tmp_path / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"
    day.write_bytes(100_000 * line)
    captures = Captures(tmp_path, 100_000 * len(line), 30)
    tracemalloc.start()
    gone = captures.write(record("new"), b"")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert day.read_bytes().count(line) == 100_000 - gone and 9_000 < gone < 11_000
    assert peak < 20_000_000


def test_a_clock_that_is_set_back_parts_no_file_from_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures, clock = Captures(tmp_path, 100_000, 30), Mock(now=Mock())
    monkeypatch.setattr("bundle_door.watching.captures.datetime", clock)
    for number in range(13):
        hour = 12 if number < 8 else 11
        clock.now.return_value = datetime(2026, 11, 30, hour, 0, number, tzinfo=UTC)
        captures.write(record(str(number)), JPEG)
    kept = [each["file"] for each in captures.read()]
    assert any("/12" in file for file in kept) and any("/11" in file for file in kept)
    assert {f"{path.parent.name}/{path.name}" for path in tmp_path.rglob("*.jpg")} == {*kept}


def test_old_days_go(tmp_path: Path) -> None:
    captures = Captures(tmp_path, 1_000_000, 2)
    captures.write(record("new"), JPEG)
    (day,) = tmp_path.glob("*.jsonl")
    day.with_suffix("").rename(tmp_path / "2026-01-01")
    day.rename(tmp_path / "2026-01-01.jsonl")
    captures.write(record("newer"), JPEG)
    captures.remove_old()
    assert [each["id"] for each in captures.read()] == ["newer"]
    assert not (tmp_path / "2026-01-01").exists()


def test_what_a_kill_leaves_of_an_old_day_goes(tmp_path: Path) -> None:
    """Its lines go first: then nothing names the files."""
    captures = Captures(tmp_path, 100_000, 2)
    for number in range(10):
        captures.write(record(str(number)), JPEG)
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "120000.000000-1f3a.jpg").write_bytes(JPEG)
    assert captures.forget("none") == 0 and len([*captures.read()]) == 10
    (tmp_path / "2026-01-02").rename(tmp_path / "2999-01-01")
    captures.remove_old()
    assert not (tmp_path / "2026-01-01").exists() and (tmp_path / "2999-01-01").exists()
    (tmp_path / "2999-01-01").rename(tmp_path / "2026-01-02")
    captures.write(record("next"), JPEG)
    assert not (tmp_path / "2026-01-02").exists() and [*captures.read()][-1]["id"] == "next"


def test_what_a_kill_leaves_of_lines_that_it_writes_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = Captures(tmp_path, 1_000_000, 30)
    for id in ("one", "two"):
        captures.write(record(id), JPEG)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Path, "replace", Mock(side_effect=KeyboardInterrupt))
        captures.forget("one")
    assert b'"two"' in next(tmp_path.glob("*.new")).read_bytes()
    assert captures.forget("two") == 1 and not [*tmp_path.glob("*.new")]


def test_folders_that_are_no_days_stay(tmp_path: Path) -> None:
    """As a file system has them at its top."""
    captures = Captures(tmp_path, 100_000, 2)
    (tmp_path / ".Trash-1000" / "files").mkdir(parents=True)
    (tmp_path / ".Trash-1000" / "photo.jpg").write_bytes(JPEG)
    captures.remove_old()
    for number in range(15):
        captures.write(record(str(number)), JPEG)
    assert [*captures.read()][-1]["id"] == "14"
    assert (tmp_path / ".Trash-1000" / "photo.jpg").exists()


def test_days_before_all_clocks(tmp_path: Path) -> None:
    captures = Captures(tmp_path, 1_000_000, 10**12)
    captures.write(record("one"), JPEG)
    captures.remove_old()
    assert [each["id"] for each in captures.read()] == ["one"]


WRITES = """
import sys
from pathlib import Path
from bundle_door.watching.captures import Captures
captures = Captures(Path(sys.argv[1]), 3_000_000, 30)
number = 0
while True:
    captures.write({"id": "", "time": "", "size": 9002}, b"\\xff\\xd8" + bytes(9000))
    number += 1
    if number == 50:
        Path(sys.argv[2]).touch()
"""


def test_a_kill_leaves_what_can_be_read(tmp_path: Path) -> None:
    """At any moment, also while two others write and old ones go; and it is written on."""
    captures = Captures(tmp_path / "capture", 3_000_000, 30)
    command = [sys.executable, "-c", WRITES, str(tmp_path / "capture")]
    for round in range(1, 7):
        began = tmp_path / str(round)
        writers = [subprocess.Popen([*command, str(began)]) for _ in range(2)]
        wait_until(began.exists, "records")
        time.sleep(0.02 * round)
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        found = [*captures.read()]
        assert len(found) >= 50
        for each in found:
            assert (tmp_path / "capture" / each["file"]).stat().st_size == each["size"]
    (day,) = (tmp_path / "capture").glob("*.jsonl")
    day.write_bytes(day.read_bytes() + b'{"id": "cut o')  # as a machine that fails leaves it
    captures.write(record("last"), JPEG)
    assert [*captures.read()][-1]["id"] == "last"


def test_a_line_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    """No half line, and no picture that nobody would find."""
    captures = Captures(tmp_path, 1_000_000, 30)
    captures.write(record("first"), JPEG)
    (day,) = tmp_path.glob("*.jsonl")
    before = day.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20_000, limits[1]))
    try:
        with pytest.raises(OSError):
            captures.write(record("large") | {"answer": 30_000 * "x"}, JPEG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert day.read_bytes() == before and len([*tmp_path.rglob("*.jpg")]) == 1
    captures.write(record("next"), JPEG)
    assert [each["id"] for each in captures.read()] == ["first", "next"]


def test_who_is_to_be_forgotten_is(tmp_path: Path) -> None:
    captures = Captures(tmp_path, 1_000_000, 30)
    for id in ("one", "two", "one"):
        captures.write(record(id), JPEG)
    assert captures.forget("one") == 2 and captures.forget("one") == 0
    assert [each["id"] for each in captures.read()] == ["two"]
    assert len([*tmp_path.rglob("*.jpg")]) == 1


def test_what_is_kept_elsewhere_leaves(tmp_path: Path) -> None:
    captures = Captures(tmp_path, 1_000_000, 30)
    assert captures.leave({("one", "")}) == 0
    for id in ("one", "two"):
        captures.write(record(id), JPEG)
    known = {(str(each["id"]), str(each["time"])) for each in captures.read()}
    captures.write(record("one") | {"time": "2026-11-27T12:27:38+00:00"}, JPEG)  # since then
    assert captures.leave(known) == 2 and captures.leave(known) == 0
    assert [each["time"] for each in captures.read()] == ["2026-11-27T12:27:38+00:00"]
    assert len([*tmp_path.rglob("*.jpg")]) == 1


@pytest.mark.parametrize(
    ("keep", "is_read"), [("differs", False), ("key:shop", False), ("under:0.6", True)]
)
def test_answers_are_read_where_it_depends_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, is_read: bool
) -> None:
    """Each comes by, and may be as large as a picture."""
    read = Mock(return_value=[("a", 0.7)])
    monkeypatch.setattr("bundle_door.paths.capturing.read_labels", read)

    async def answer(request: Request, named: Mapping[str, str]) -> Answer:
        return Answer(b"{}")

    keeps = Capturing(read_keep(keep), Captures(tmp_path, 1_000_000, 30), Observed()).keep(answer)
    request = Request("POST", "/classify", {}, {}, [JPEG])
    asyncio.run(asyncio.wait_for(keeps(request, {}), None))
    assert read.called == is_read


@pytest.mark.parametrize("is_copied", [False, True])
def test_what_a_shadow_may_answer_otherwise_is_held_no_longer_than_that(
    tmp_path: Path, is_copied: bool
) -> None:
    """Not until Python looks for what refers to itself: with pictures that would be a lot."""
    observed, load = Observed(), Load(Limits())
    shadowing = Shadowing(observed, load)
    answer, other = as_json({"label": "a", "score": 1}), as_json({"label": "b", "score": 1})
    candidate = Candidate("m_candidate", "2", 0, 100)

    async def ask() -> Answer:
        return other

    async def live(request: Request, named: Mapping[str, str]) -> Answer:
        if is_copied:
            shadowing.offer(candidate, ask, answer, 0.1, request)
        return answer

    async def check() -> None:
        kept = Captures(tmp_path, 1_000_000, 30)
        keeps = Capturing(Keep(differs=True), kept, observed).keep(live)
        request = Request("POST", "/classify", {}, {}, [JPEG], note=Note("one"))
        await keeps(request, {})
        note = weakref.ref(request.note)
        del request
        async with asyncio.timeout(10):
            while len([*kept.read()]) < is_copied or len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        assert note() is None

    gc.disable()
    try:
        asyncio.run(check())
    finally:
        gc.enable()
    assert [outcome for *_, outcome in observed.copies.values] == ["differs"] * is_copied


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_what_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """As on a full disk, where the lines that are left find no room."""
    captures = Captures(tmp_path, 1_000_000, 30)
    captures.write(record("one"), JPEG)
    captures.write(record("two"), JPEG)
    route, _ = Capturing(NOTHING, captures, Observed()).routes()
    known = b'[["one", "2026-11-27T12:27:37+00:00"]]'
    monkeypatch.setattr(Path, "replace", Mock(side_effect=OSError("the disk is full")))

    async def ask() -> None:
        request = Request(method, "/v2/captures", {}, {"id": "one"}, [known])
        await route.handlers[method](request, {})

    with pytest.raises(Refused, match="cannot be removed: the disk is full") as refused:
        asyncio.run(ask())
    assert refused.value.status == 507


def test_what_is_kept_is_told_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once would hold up the requests that come meanwhile."""
    captures = Captures(tmp_path, 1_000_000, 30)
    captures.write(record("one"), JPEG)
    captures.write(record("two"), b"")
    kept = [*captures.read()]
    route, _ = Capturing(NOTHING, captures, Observed()).routes()
    monkeypatch.setattr(msgspec.json, "encode", encode := Mock(wraps=msgspec.json.encode))
    request = Request("GET", "/v2/captures", {}, {})

    async def ask() -> Answer:
        return await route.handlers["GET"](request, {})

    assert json.loads(asyncio.run(ask()).body) == kept
    assert [call.args for call in encode.call_args_list] == [(each,) for each in kept]


@pytest.mark.parametrize("known", [b"{}", b'[["one", "\xff"]]'])
def test_a_list_that_is_none_is_refused(tmp_path: Path, known: bytes) -> None:
    route, _ = Capturing(NOTHING, Captures(tmp_path, 1_000_000, 30), Observed()).routes()
    request = Request("POST", "", {}, {}, [known])
    with pytest.raises(Refused, match="the list of ids and times") as refused:
        asyncio.run(asyncio.wait_for(route.handlers["POST"](request, {}), None))
    assert refused.value.status == 400


def make_key(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    made = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/CN=capture")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    return key, certificate


def test_nothing_is_readable_without_the_key(tmp_path: Path) -> None:
    key, certificate = make_key(tmp_path, "own")
    other, _ = make_key(tmp_path, "other")
    captures = Captures(tmp_path / "capture", 1_000_000, 30, certificate)
    captures.write(record("one") | {"labels": [["tabby", 0.5]]}, JPEG)
    written = b"".join(path.read_bytes() for path in captures._folder.rglob("*") if path.is_file())
    assert b"tabby" not in written and b"a picture" not in written
    (found,) = captures.read()
    assert {*found} == {"id", "time", "file"}
    head, content = unseal(captures.open_file(found["file"]), key)
    assert head["labels"] == [["tabby", 0.5]] and content == JPEG
    with pytest.raises(ValueError):
        unseal(captures.open_file(found["file"]), other)
    certificate.write_text(json.dumps("nobody's"))
    with pytest.raises(OSError, match="cannot encrypt"):
        captures.write(record("two"), JPEG)
    assert len([*captures.read()]) == 1 and captures.forget("one") == 1
