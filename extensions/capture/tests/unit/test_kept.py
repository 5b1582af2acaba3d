"""Copies of what was kept, and which pictures are most worth a label."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import Mock, patch

import pytest

from bundle_door.limits import MOST_ID
from bundle_door.watching.captures import Captures
from extensions.capture import kept
from extensions.capture.commands import captured
from extensions.capture.kept import TOGETHER, Kept, Store, sort_by_worth
from scripts.base.errors import UserError
from scripts.repository.place import Folder
from scripts.server.triton.triton_api import Missing
from scripts.stacks import admin_key


def record(id: str, *labels: tuple[str, float]) -> dict[str, object]:
    when = "2026-11-27T12:27:37+00:00"
    of = {"id": id, "time": when, "pipeline": "birds", "version": "1", "path": "/classify"}
    answered = {"type": "", "ms": 9.5, "labels": [list(each) for each in labels], "head": ""}
    return of | answered | {"file": "2026-11-27/122737.262051-1f3a.jpg"}


def test_the_closest_of_each_class_come_first() -> None:
    records = [
        record("sure", ("cat", 0.9), ("dog", 0.1)),
        record("hardly", ("cat", 0.4), ("dog", 0.39)),
        record("alone", ("cat", 0.6)),
        record("a dog", ("dog", 0.99), ("cat", 0.01)),
        record("unlabelled"),
    ]
    worth = [each["id"] for each in sort_by_worth(records)]
    assert worth == ["hardly", "a dog", "alone", "sure"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    captures = Captures(tmp_path / "kept", 1_000_000, 30)
    for id, label, picture in (("1/..", "a/b", "x"), ("2", "class 7", "y"), ("3", "class 7", "y")):
        captures.write(record(id, (label, 0.5)), b"\xff\xd8" + picture.encode())
    (without := record("4")).pop("file")
    captures.write(without, b"")
    return tmp_path / "kept"


def test_a_copy_is_read_as_what_was_kept(folder: Path, tmp_path: Path) -> None:
    kept = Kept.find(str(folder), None)
    (tmp_path / "copy").mkdir()
    kept.lay_out(tmp_path / "copy")
    assert Kept.find(str(tmp_path / "copy"), None).records == kept.records
    with pytest.raises(UserError, match="no request was kept"):
        Kept.find(str(tmp_path), None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("file", "../secret.txt"),
        ("sealed", "/etc/passwd"),
        ("time", "../evil"),
        ("labels", None),
        ("head", None),
    ],
)
def test_a_copy_from_elsewhere_leads_nowhere_else(
    field: str, value: str | None, tmp_path: Path
) -> None:
    line = json.dumps(record("1") | {field: value})
    (tmp_path / "2026-11-27.jsonl").write_text(line + "\n")
    with pytest.raises(UserError, match=f"^'1' has no {field} as"):
        Kept.find(str(tmp_path), None)


def test_pictures_to_be_labelled_lie_by_what_they_were_called(folder: Path, tmp_path: Path) -> None:
    """Each once, and below the folder whatever the client called its request."""
    (out := tmp_path / "out").mkdir()
    assert Kept.find(str(folder), None).lay_out_for_labels(out, 9, "birds") == 2
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.jpg")) == [
        "7/2.jpg",
        "a_b/1_...jpg",
    ]


def test_pictures_to_be_labelled_are_of_one_pipeline(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    birds = Mock(ensemble="birds", option=" MODEL=birds")
    with patch("scripts.recipes.pipelines.find_asked_pipeline", side_effect=[birds, Mock()]):
        captured.copy(Kept.find(str(folder), None), out := tmp_path / "out", 9)
        assert f"then make eval EVAL={out} MODEL=birds" in capsys.readouterr().out
        with pytest.raises(UserError, match="was kept"):
            captured.copy(Kept.find(str(folder), None), tmp_path / "none", 9)
    assert not (tmp_path / "none").exists()


def test_what_was_removed_from_a_copy_is_passed_over(folder: Path, tmp_path: Path) -> None:
    kept = Kept.find(str(folder), None)
    (folder / kept.records[0]["file"]).unlink()
    (out := tmp_path / "out").mkdir()
    assert kept.lay_out(out) == 3
    assert Kept.find(str(out), None).records == kept.records[1:]
    (labelled := tmp_path / "labelled").mkdir()
    assert kept.lay_out_for_labels(labelled, 9, "birds") == 1


def test_no_more_is_read_than_is_copied(folder: Path, tmp_path: Path) -> None:
    kept = Kept.find(str(folder), None)
    seen = replace(kept, fetch=Mock(side_effect=kept.fetch))
    assert seen.lay_out_for_labels(tmp_path / "kept", 1, "birds") == 1
    assert cast(Mock, seen.fetch).call_count == 1


class Elsewhere(dict[str, bytes]):
    """A rehearsal of a folder on S3."""

    def read(self, name: str) -> bytes | None:
        return self.get(name)

    def write(self, name: str, content: bytes) -> None:
        self[name] = content

    def remove(self, name: str) -> None:
        del self[name]

    def list(self) -> list[str]:
        return [*self]


def test_what_goes_while_it_is_copied_stops_nothing() -> None:
    """The server makes room for others meanwhile; S3 may be gone after the first of many."""
    count = TOGETHER + 10
    records = [record(str(number)) | {"file": f"{number}.jpg"} for number in range(count)]

    def fetch(name: str) -> bytes:
        if name == "3.jpg":
            raise Missing("Not Found", "")
        if is_away and name == f"{TOGETHER}.jpg":
            raise UserError("nothing is listening", "")
        return name.encode()

    there, is_away = Elsewhere(), True
    store = Store(cast(Folder, there))
    with pytest.raises(UserError):
        store.add(records, fetch)
    assert len(there["2026-11-27.jsonl"].splitlines()) == TOGETHER - 1
    is_away = False
    assert store.add(records, fetch) == 10
    lines = there["2026-11-27.jsonl"].splitlines()
    assert len(lines) == count - 1 and not any(b'"3.jpg"' in line for line in lines)


def test_what_is_to_be_forgotten_is_named_until_it_has_gone() -> None:
    """Else nobody would find a picture that S3, gone meanwhile, has kept."""
    there = Elsewhere()
    store = Store(cast(Folder, there))
    store.add([record("1") | {"file": "1.jpg"}, record("2") | {"file": "2.jpg"}], str.encode)
    away = patch.object(there, "remove", side_effect=UserError("nothing is listening", ""))
    with away, pytest.raises(UserError):
        store.forget("1")
    assert {*there} == {"2026-11-27.jsonl", "1.jpg", "2.jpg"}
    assert store.forget("1") == 1 and store.forget("1") == 0
    assert {*there} == {"2026-11-27.jsonl", "2.jpg"}
    assert [each["id"] for each in store.read_records()] == ["2"]


def test_what_is_moved_meanwhile_is_not_forgotten_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FOLLOW=1 runs for long; the server has let go of what it has moved."""
    monkeypatch.setattr(kept, "WRITING", tmp_path / "lock")
    there = Elsewhere()
    store = Store(cast(Folder, there))
    store.add([record("1"), record("2")], str.encode)
    moving, read = threading.Thread(target=store.add, args=([record("3")], str.encode)), there.read

    def read_as_another_comes(name: str) -> bytes | None:
        found = read(name)
        if not moving.ident:
            moving.start()
            moving.join(0.3)
        return found

    monkeypatch.setattr(there, "read", read_as_another_comes)
    assert store.forget("1") == 1
    moving.join()
    assert {each["id"] for each in store.read_records()} == {"2", "3"}


def test_what_two_commands_copy_at_once_is_there_once() -> None:
    one, store = record("1") | {"file": "1.jpg"}, Store(cast(Folder, Elsewhere()))

    def fetch_as_another_copies(name: str) -> bytes:
        store.add([one], str.encode)
        return name.encode()

    store.add([one], fetch_as_another_copies)
    assert store.read_records() == [one]


def test_a_place_is_called_as_it_was_given() -> None:
    with pytest.raises(UserError, match=r"^s3://bucket: a folder inside the bucket is missing"):
        Store.open("s3://bucket")


@pytest.mark.usefixtures("umask_077")
def test_a_containers_door_reads_the_certificate_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_key, "ensure", lambda: tmp_path / "admin.key")
    captured.make_key(tmp_path / "capture.key")
    found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert found == {"capture.pem": 0o644, "capture.key": 0o600}


def test_what_was_moved_leaves_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may take no more than a megabyte at once: MAX_BODY_MB=1."""
    post = Mock()
    monkeypatch.setattr("scripts.server.triton.triton_api.post", post)
    monkeypatch.setattr(captured, "find_server", Mock())
    monkeypatch.setattr(Store, "open", Mock(return_value=Mock(add=Mock(return_value=9))))
    records = [record("x" * MOST_ID)] * 12_000
    monkeypatch.setattr(Kept, "find", lambda *_: Kept(records, Mock()))
    assert captured.move("s3://bucket/kept") == 9
    sent = [call.args[2] for call in post.call_args_list]
    assert sum(map(len, sent)) == len(records)
    assert max(len(json.dumps(each)) for each in sent) < 1_000_000
