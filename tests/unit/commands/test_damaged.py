"""Files of make's own that a power failure or somebody's hand has damaged: mended, or told in one
line with the way to mend them."""

import json
from pathlib import Path

import pytest

from bundle_serving.process import keeper_notes, sockets
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import archive, history, live
from scripts.settings.settings import DEFAULTS
from scripts.stacks import state
from scripts.stacks.state import State

DAMAGE = [b"", b"\0" * 40, b"\xff\xfe\x00{", b"{", b"null", b"5", b'"x"', b"[1]", b'{"a": 1}']

first = pipelines.main()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    return tmp_path


@pytest.mark.parametrize("content", DAMAGE[1:])
def test_a_line_of_the_history(here: Path, content: bytes) -> None:
    history.add(first, history.SERVES, 1, "up")
    file = history.path(first)
    good = file.read_bytes()
    file.write_bytes(good + content + b"\n" + good)
    with pytest.raises(UserError, match=r"history\.jsonl, line 2, cannot be read") as refused:
        history.read(first)
    assert refused.value.remedy.endswith("make rollout VERSION=")
    file.write_bytes(good + good)  # as it says
    assert len(history.read(first)) == 2
    with pytest.raises(UserError, match="history on S3, line 1, cannot be read"):
        history.replace(first, content, "the history on S3")
    assert len(history.read(first)) == 2


@pytest.mark.parametrize("version", ["1", None, 1.5, [1]])
def test_an_event_of_what_is_no_version(here: Path, version: object) -> None:
    event = {"time": "", "what": history.SERVES, "version": version, "how": "up"}
    files.write(history.path(first), json.dumps(event))
    with pytest.raises(UserError, match="line 1, cannot be read"):
        history.read(first)


def test_what_another_machine_has_recorded_is_shown_by_the_door(here: Path) -> None:
    event = {"time": "", "what": history.SERVES, "version": 7, "how": "up"}
    history.replace(first, json.dumps(event).encode(), "there")
    shown = json.loads((live.REPOSITORY / history.SHOWN).read_bytes())
    assert [each["version"] for each in shown[first.ensemble]] == [7]


@pytest.mark.parametrize("content", DAMAGE[:-1])
def test_what_the_door_reads_of_it_is_written_again(here: Path, content: bytes) -> None:
    other = pipelines.others()[0]
    for pipeline in (first, other):
        history.add(pipeline, history.SERVES, 1, "up")
    shown = live.REPOSITORY / history.SHOWN
    whole = json.loads(shown.read_bytes())
    shown.write_bytes(content)
    history.show(first)
    kept = json.loads(shown.read_bytes())
    assert {name: kept[name] for name in whole} == whole and len(whole) == 2


@pytest.mark.parametrize("content", DAMAGE)
def test_the_note_of_the_running_server(here: Path, content: bytes) -> None:
    path = here / "state.json"
    assert state.load(path) is None
    State("local", "a mark", dict(DEFAULTS)).save(path)
    state.forget_damaged(path)
    assert state.load(path)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"state\.json cannot be read") as refused:
        state.load(path)
    assert "make down" in refused.value.remedy
    state.forget_damaged(path)
    assert state.load(path) is None


@pytest.mark.parametrize("changed", [{"flavour": "locam"}, {"settings": {"HTTP_PORT": 1}}])
def test_a_note_of_another_form(here: Path, changed: dict[str, object]) -> None:
    written = {"flavour": "local", "fingerprint": "", "settings": {}}
    files.write(here / "state.json", json.dumps(written | changed))
    with pytest.raises(UserError, match=r"state\.json cannot be read"):
        state.load(here / "state.json")


@pytest.mark.parametrize("content", DAMAGE)
def test_the_record_of_a_version(here: Path, content: bytes) -> None:
    files.write_bytes(here / "versions" / "1" / archive.RECORD, content)
    with pytest.raises(UserError, match=r"version\.json cannot be read") as refused:
        archive.load(first, 1)
    assert str(here / "versions" / "1") in refused.value.remedy


@pytest.mark.parametrize("content", DAMAGE)
def test_the_keepers_notes(here: Path, content: bytes) -> None:
    assert keeper_notes.parse_notes(content) in ({}, {"a": 1})


@pytest.mark.parametrize("content", [b"\xff", b"\0", b"", b"/", b"."])
def test_where_the_sockets_are(here: Path, content: bytes) -> None:
    """A folder that the note names is removed with all that is in it."""
    deep = here / ("x" * 100)
    deep.mkdir()
    made = sockets.folder(deep)
    (deep / sockets.ELSEWHERE).write_bytes(content or str(here).encode())
    sockets.forget(deep)
    assert here.is_dir() and made.is_dir() and not (deep / sockets.ELSEWHERE).exists()
    made.rmdir()
