"""What was live besides the main pipeline is live again: whatever was noted, or is lost."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from bundle_serving.process import keeper_notes
from bundle_serving.process.keeper_notes import BESIDE
from scripts.base import files
from scripts.base.errors import UserError
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import CPU, Layout
from scripts.repository import archive, history, live, model_folders, place
from scripts.rollout.servers import Servers
from scripts.server import layouts, loaded_beside
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import admin_key

SETTINGS = Settings(DEFAULTS)
# Whichever there are.
ONE, OTHER, THIRD = pipelines.others()[:3]
LIVE = {each.name: each.ensemble for each in (ONE, OTHER)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout where two pipelines were live, another one was only published, and nothing is
    noted: as after a restore of a backup that has no note."""
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    monkeypatch.setattr(live, "REPOSITORY", tmp_path / "live")
    monkeypatch.setattr(admin_key, "PATH", tmp_path / "key" / "admin.key")
    monkeypatch.setattr(loaded_beside, "EARLIER", tmp_path / "run" / BESIDE)
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    for name in LIVE:
        history.add(pipelines.find_pipeline(name), history.SERVES, 1, "up")
        version = {"number": 1, "made": "", "settings": dict(DEFAULTS), "models": {}, "hashes": {}}
        files.write(tmp_path / "versions" / name / "1" / archive.RECORD, json.dumps(version))
    history.add(THIRD, history.PUBLISHED, 1, "publish")
    return tmp_path


def remembered() -> set[str]:
    return {version.pipeline.ensemble for version in loaded_beside.read_remembered()}


def test_without_a_note_it_is_all_that_was_live(here: Path) -> None:
    assert remembered() == {*LIVE.values()}
    files.write(here / "versions" / BESIDE, "damaged")
    assert remembered() == {*LIVE.values()}


def test_a_note_says_what_was_loaded_last(here: Path) -> None:
    loaded_beside.forget(OTHER.ensemble)
    assert remembered() == {ONE.ensemble}
    loaded_beside.forget(ONE.ensemble)
    assert remembered() == set()
    loaded_beside.remember(OTHER.ensemble)
    assert remembered() == {OTHER.ensemble}


def test_the_note_of_an_earlier_bundle_is_taken_over(here: Path) -> None:
    files.write(here / "run" / BESIDE, json.dumps([OTHER.ensemble, "mine"]))
    assert remembered() == {OTHER.ensemble}
    loaded_beside.remember(ONE.ensemble)
    assert not (here / "run" / BESIDE).exists()
    expected = sorted([OTHER.ensemble, "mine", ONE.ensemble])
    # In backups, and for a keeper whose container is started again.
    assert keeper_notes.read_loaded_beside(here / "versions") == expected
    assert keeper_notes.read_loaded_beside(here / "key") == expected


def test_what_is_damaged_of_one_keeps_no_other_away(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_bytes(here / "versions" / ONE.name / "1" / archive.RECORD, b"\xff")
    assert remembered() == {OTHER.ensemble}
    (line,) = capsys.readouterr().out.splitlines()
    builds = f"make up MODEL={ONE.name} builds the live version anew"
    assert f"{ONE.name} is left out: " in line and builds in line
    files.write_bytes(here / "versions" / ONE.name / history.NAME, b"\xff\n")
    with pytest.raises(UserError, match="line 1, cannot be read"):
        history.read(ONE)
    assert remembered() == {OTHER.ensemble}


def test_a_model_of_the_users_is_uploaded_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another machine has rolled out since of the main pipeline is not here."""
    monkeypatch.setattr(folders, "model_folders", lambda: {"mine": here})
    monkeypatch.setattr(loaded_beside, "read_loaded", lambda: ["mine"])
    monkeypatch.setattr(loaded_beside, "lay_out_own", Mock())
    monkeypatch.setattr(loaded_beside, "Control", Mock())
    monkeypatch.setattr(place, "open_folder", Mock(return_value=(there := Mock())))
    loaded_beside.load_again(Mock(), {})
    assert there.mirror.call_args.kwargs["only"] == ("mine",)


def test_what_an_earlier_bundle_or_other_settings_laid_out_is_as_it_has_to_be_now(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(here / "live" / ONE.ensemble / "config.pbtxt", "")
    files.write(here / "live" / OTHER.ensemble / "config.pbtxt", "bounded")
    monkeypatch.setattr(layouts, "lay_out", lay_out)
    laid_out = loaded_beside.lay_out(SETTINGS, CPU)
    assert laid_out == {ONE.ensemble: True, OTHER.ensemble: False}
    assert not any(loaded_beside.lay_out(SETTINGS, CPU).values())
    assert not loaded_beside.lay_out(SETTINGS, CPU, stuck=laid_out)
    monkeypatch.setattr(layouts, "lay_out", Mock(side_effect=KeyError("crop")))
    assert loaded_beside.lay_out(SETTINGS, CPU) == {}
    monkeypatch.setattr(loaded_beside, "load", load := Mock())
    loaded_beside.load_again(Mock(), laid_out)
    loads = {call.args[1].name: call.args[2] for call in load.mock_calls}
    assert loads == {ONE.name: True, OTHER.name: False}


def lay_out(version: archive.Version, how: Layout, target: Path) -> None:
    files.write(target / version.pipeline.ensemble / "config.pbtxt", "bounded")


@pytest.fixture
def versions(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the folders are of one of the model's versions, as they are served."""
    monkeypatch.setattr(layouts, "lay_out", lay_out)
    record = here / "versions" / ONE.name / "1" / archive.RECORD
    (model, *_) = ONE.recipe.members
    content = {**json.loads(record.read_text()), "models": {model: 1}, "hashes": {model: {}}}
    files.write(record, json.dumps(content))
    for number in ("1", "2"):
        files.write(here / "live" / model / number / "model.py", "")
    files.write(here / "live" / ONE.ensemble / "config.pbtxt", "bounded")
    return here / "live" / model


def test_of_two_versions_the_live_one_alone_is_laid_out(versions: Path) -> None:
    """What was killed had begun with the other, or another machine has gone back from it; the
    ensemble asks the newest."""
    history.add(ONE, history.BEGINS, 2, "up")
    assert loaded_beside.lay_out(SETTINGS, CPU)[ONE.ensemble]
    assert {each.name for each in versions.iterdir()} == {"1"}


def test_what_another_machine_has_made_live_is_loaded_anew(
    versions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what this one's server has not stays where the next upload would remove it."""
    loaded_beside.forget(OTHER.ensemble)
    assert loaded_beside.lay_out(SETTINGS, CPU).keys() == {ONE.ensemble}
    monkeypatch.setattr(place, "find", Mock())
    monkeypatch.setattr(loaded_beside, "Shared", Mock(return_value=(shared := Mock())))
    shared.pull = lambda: files.write(versions / "2" / "model.py", "")
    assert loaded_beside.lay_out(SETTINGS, CPU) == {ONE.ensemble: True, OTHER.ensemble: True}
    assert remembered() == {ONE.ensemble}


def test_several_servers_go_without_what_fails(here: Path) -> None:
    """And with nothing that could not be laid out, though it was proved before."""

    def prove(_: Settings, version: Any, how: Layout) -> None:
        if version.pipeline == OTHER:
            raise KeyError("an earlier bundle's")

    main: Any = SimpleNamespace(pipeline=pipelines.main(), number=3)
    for laid_out, expected in (({*LIVE.values()}, {ONE.ensemble: 1}), (set[str](), {})):
        found = Servers.list_pipelines(Mock(_prove=prove), SETTINGS, main, laid_out)
        assert found == {main.pipeline.ensemble: 3} | expected


def test_a_version_beside_decodes_as_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((model_folders, "furnish"), (live, "place")):
        monkeypatch.setattr(owner, name, Mock())
    monkeypatch.setattr(model_folders, "configure", configure := Mock())
    how = layouts.layout(SETTINGS, CPU)
    settings = {"PREPROCESS": "dali"}
    layouts.lay_out(archive.Version(ONE, 1, "", settings, {}, {}), how, Path("live"))
    assert configure.call_args.args[2].decoding.step == "dali"


@pytest.mark.parametrize("content", [b"", b"\xff", b"5", b"null", b"{"])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    assert keeper_notes.read_loaded_beside(tmp_path) is None
    (tmp_path / BESIDE).write_bytes(content)
    assert keeper_notes.read_loaded_beside(tmp_path) is None


def test_pipelines_of_the_users_stay_where_they_cannot_be_seen(here: Path) -> None:
    """The step `layout` of compose.yaml does not see the user's folder."""
    files.write(here / "live" / "birds" / "config.pbtxt", "")
    model_folders.furnish(ONE, here / "live")
    assert (here / "live" / "birds").is_dir()
    (here / "own").mkdir()
    model_folders.furnish(ONE, here / "live")
    assert not (here / "live" / "birds").exists()


def test_what_never_came_up_is_not_in_the_repository(here: Path) -> None:
    """Triton's index names every folder in it."""
    there, its = here / "live", {ONE.ensemble, *ONE.recipe.members}
    files.write(here / "own/model_repository/mine/config.pbtxt", "")
    files.write(there / OTHER.ensemble / "config.pbtxt", "left by an earlier bundle")
    model_folders.furnish(ONE, there)
    assert {folder.name for folder in there.glob("*/")} == {*its, "mine"}
    model_folders.furnish(OTHER, there)
    assert not (there / ONE.ensemble).exists(), "it has no version there"
    others = {OTHER.ensemble, *OTHER.recipe.members}
    for member in OTHER.recipe.members:
        (there / member / "1").mkdir()
    model_folders.furnish(ONE, there)
    assert {folder.name for folder in there.glob("*/")} == {*its, *others, "mine"}
