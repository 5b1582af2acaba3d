"""`triton-bundle`: the verbs of make, without make."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.base.text import CALLED_AS, translate
from scripts.program import command_line, folder, help, verbs

KNOWN = verbs.read()


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_runs_what_make_runs(name: str) -> None:
    """make -Bn says what it would run, with all layers missing."""
    said = subprocess.run(
        ["make", "-Bn", "LAYER=.none/layers", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    made = re.findall(r"-m (?:scripts\.bootstrap (\S+)|(.*))$", said, re.MULTILINE)
    steps = list(verbs.list_steps(KNOWN[name], KNOWN))
    mine = [step if isinstance(step, str) else " ".join(step.words) for step in steps]
    assert list(dict.fromkeys(mine)) == [layer or " ".join(words.split()) for layer, words in made]


def test_knows_every_command_with_a_line_of_help() -> None:
    text = "".join(
        file.read_text() for file in (ROOT / "Makefile", *ROOT.glob("*/*/commands.mk"))
    ).split(f"##@ {verbs.OF_CHECKOUTS}")[0]
    named = set(re.findall(r"^([a-z0-9-]+):.*##", text, re.MULTILINE))
    assert named - {*verbs.OF_PROGRAM} <= KNOWN.keys()


def test_names_files_from_where_the_user_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jpg", "b c.jpg"):
        (tmp_path / name).touch()
    absolute = command_line.make_absolute
    assert absolute("IMG", "a.jpg") == f"{tmp_path}/a.jpg"
    assert absolute("IMG", "a.jpg 'b c.jpg'") == f"{tmp_path}/a.jpg '{tmp_path}/b c.jpg'"
    assert absolute("IMG", "https://example.org/a.jpg") == "https://example.org/a.jpg"
    assert absolute("SAMPLE", "a.jpg=robin") == f"{tmp_path}/a.jpg=robin"
    assert absolute("FROM", "timm/resnet18") == "timm/resnet18"


def test_speaks_as_make_does_where_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    made = folder.make_environment(command_line.parse(["up"], {}), KNOWN)
    assert translate("make help, make demo", *made[CALLED_AS].split(" ", 2)).count("triton-b") == 2
    assert made["PYTHONUTF8"] == "1" and not {"PYTHONIOENCODING", "PYTHONHOME"} & made.keys()
    monkeypatch.delenv("PYTHONHOME")
    command = [sys.executable, "-m", "scripts.program", "help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert "…" in said.stdout


def test_shows_what_is_no_text_as_before() -> None:
    """A file's name may be no UTF-8: on stderr, Python writes it down all the same."""
    program = (
        "import sys; from scripts.program.__main__ import main; main(); print(sys.stderr.errors)"
    )
    command = [sys.executable, "-c", program, "help"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert said.stdout.endswith("\nbackslashreplace\n")


def test_says_its_own_name_in_messages() -> None:
    said = translate("make up writes build/x; make sure of .env", "triton-bundle", "up", "bundle")
    assert said == "triton-bundle up writes bundle/build/x; make sure of bundle/.env"


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(UserError, match="unknown command clasify") as fault:
        command_line.require_known("clasify", KNOWN)
    assert fault.value.remedy == "did you mean classify?"
    with pytest.raises(UserError, match=r"photo\.jpg is not a setting"):
        command_line.parse(["classify", "photo.jpg"], {})
    with pytest.raises(UserError, match="--json takes no value"):
        command_line.parse(["classify", "--json=1"], {})


def _package(monkeypatch: pytest.MonkeyPatch, home: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    monkeypatch.setattr(folder, "ROOT", home)
    hashes = {name: folder._hash(home / name) for name in texts}
    monkeypatch.setattr(folder, "_list_packaged", lambda: hashes)


def test_a_newer_package_is_laid_over_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "bundle"
    _package(monkeypatch, tmp_path / "old", {"Makefile": "1", "scripts/gone.py": "1"})
    folder.prepare(target)
    (target / ".env").write_text("ARCH=resnet18\n")
    _package(monkeypatch, tmp_path / "new", {"Makefile": "2"})
    os.utime(tmp_path / "new" / "Makefile", (0, 0))  # unpacked long ago, for another folder
    folder.prepare(target)
    assert (target / "Makefile").read_text() == "2"
    assert (target / "Makefile").stat().st_mtime > 0  # else what it requires would count as here
    assert not (target / "scripts/gone.py").exists()
    assert (target / ".env").read_text() == "ARCH=resnet18\n"
    assert [*json.loads((target / folder.NOTE).read_text())] == ["Makefile"]
    assert not (target / folder.EDITED).exists()


def test_what_is_edited_of_a_packages_files_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, names = tmp_path / "bundle", ("kept.py", "newer.py", "gone.py")
    _package(monkeypatch, tmp_path / "old", dict.fromkeys(names, "1"))
    folder.prepare(target)
    for name in names:
        (target / name).write_text("mine")
    _package(monkeypatch, tmp_path / "new", {"kept.py": "1", "newer.py": "2"})
    folder.prepare(target)
    assert (target / "kept.py").read_text() == "mine" and not (target / "gone.py").exists()
    assert (target / "newer.py").read_text() == "2"
    for name in ("newer.py", "gone.py"):
        assert (target / folder.EDITED / name).read_text() == "mine"
    for number in ("3", "4"):
        (target / "newer.py").write_text(f"mine in {number}")
        _package(monkeypatch, tmp_path / "new", {"kept.py": "1", "newer.py": number})
        folder.prepare(target)
    edited = [(target / folder.EDITED / f"newer.py{end}").read_text() for end in ("", ".1", ".2")]
    assert edited == ["mine", "mine in 3", "mine in 4"]


def test_an_earlier_package_that_was_killed_noted_no_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it laid out is kept aside, as nobody knows whose it is; it is not told file by file."""
    target = tmp_path / "bundle"
    _package(monkeypatch, tmp_path / "new", {"model.py": "2"})
    files.write(target / folder.NOTE, json.dumps({"model.py": ""}))
    files.write(target / "model.py", "1")
    folder.prepare(target)
    assert (target / folder.EDITED / "model.py").read_text() == "1" and not capsys.readouterr().err


@pytest.mark.parametrize("is_file", [False, True])
def test_what_is_not_its_own_is_refused(
    is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(monkeypatch, tmp_path / "new", {"Makefile": "2"})
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="has other files"):
        folder.prepare(theirs / "thesis.txt" if is_file else theirs)
    assert [each.name for each in theirs.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(monkeypatch, tmp_path / "new", {"Makefile": "2"})
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UserError, match="bundle cannot be made"):
        folder.prepare(tmp_path / "thesis.txt" / "bundle")


def test_bash_completes_commands_and_settings() -> None:
    known = verbs.Verb("classify", about="Name it: IMG=a.jpg"), verbs.Verb("up", about="Start it")
    written = help.write_completion("bash", {each.name: each for each in known})
    asked = """
COMP_WORDS=(triton-bundle cl) COMP_CWORD=1; _triton_bundle; echo "${COMPREPLY[@]}"
compopt() { :; }
COMP_WORDS=(triton-bundle classify I) COMP_CWORD=2; _triton_bundle; echo "${COMPREPLY[@]}"
"""
    answered = subprocess.run(
        ["bash", "-c", written + asked], capture_output=True, text=True, check=True
    )
    assert answered.stdout.split() == ["classify", "IMG="]
