"""What commands that ask a pipeline refuse, before a server is started."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bundle_client import Client, PictureRefused, Result, ServerUnreachable, Source
from bundle_client.sources import PICTURES
from scripts.base.errors import UserError
from scripts.recipes.asking import (
    ASKED_ABOUT,
    about_files,
    about_pictures,
    find_asked,
    require_taken,
)


@pytest.mark.parametrize("setting", ASKED_ABOUT)
def test_a_file_takes_what_is_found_in_pictures_and_videos(setting: str) -> None:
    require_taken(setting, {setting: "what"})
    given = {setting: "what", "OUT": "answers.csv"}
    if setting in ("IMG", "VIDEO"):
        require_taken(setting, given)
        return
    with pytest.raises(UserError, match=f"OUT is given, which .*, not in {setting}$") as refused:
        require_taken(setting, given)
    assert refused.value.remedy == "leave it out; JSON=1 prints lines for a file"


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"IMG": "photos", "SOUND": "bell.wav"}, "leave it out"),
        ({"SOUND": "bell.wav"}, "give IMG=… instead"),
    ],
)
def test_a_pipeline_is_asked_about_one_thing(given: dict[str, str], remedy: str) -> None:
    with pytest.raises(UserError, match="SOUND is given, which this pipeline") as refused:
        require_taken("IMG", given)
    assert refused.value.remedy == f"{remedy}; or name another one: MODEL="


def test_answers_go_to_one_place() -> None:
    unasked = cast(Any, None)
    with pytest.raises(UserError, match="OUT= and JSON=1 both say where the answers go"):
        about_pictures(unasked, "birds", ["photos"], {"OUT": "answers.csv", "JSON": "1"})


def test_what_a_command_is_asked_about() -> None:
    """A function and a table have an example, all else has none."""
    assert find_asked("TEXT", "trace", {"TEXT": "What a day!"}) == ["What a day!"]
    assert find_asked("IN", "trace", {}) == find_asked("INPUTS", "trace", {}) == []
    for setting, given in (("TEXT", "TEXT="), ("IMG", "IMG="), ("SOUND", "SOUND=")):
        with pytest.raises(UserError, match=r"no \w+ given") as refused:
            find_asked(setting, "trace MODEL=mine", {})
        assert f"make trace MODEL=mine {given}" in str(refused.value.remedy)


def test_each_file_has_its_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"no picture")

    def refuse(client: Client, source: Source) -> Result:
        raise PictureRefused("not a picture", "send one")

    unasked = cast(Any, SimpleNamespace(known={"url": "localhost:1"}))
    assert about_files(unasked, [str(file)], {"JSON": "1"}, PICTURES, refuse) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["source"], found["error"]["cause"]) == (str(file), "not a picture")


def test_a_server_that_is_gone_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    def miss(client: Client, source: Source) -> Result:
        raise ServerUnreachable("localhost:1: connection refused", "start it")

    unasked = cast(Any, SimpleNamespace(known={"url": "localhost:1"}))
    assert about_files(unasked, ["one.jpg", "two.jpg"], {}, PICTURES, miss) == 1
    assert capsys.readouterr().err == "error: localhost:1: connection refused; start it\n"
