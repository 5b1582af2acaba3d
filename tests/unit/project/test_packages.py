"""requirements.txt beside a program of the user's own."""

import re
import shutil
from pathlib import Path

import pytest

from scripts.artefacts import packages
from scripts.base.errors import UserError
from tests.wheels import write_wheel

FROM = "--no-index\n--find-links wheels\n"


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it lies; and wheels that it may name."""
    monkeypatch.setattr(packages, "HERE", tmp_path / "cache")
    wheels = tmp_path / "wheels"
    write_wheel(wheels, "robins", "1.0", "SONG = 'tick'\n", needs="wrens")
    write_wheel(wheels, "wrens", "2.0", "SONG = 'trill'\n")
    write_wheel(wheels, "numpy", "9.0.0", "")
    write_wheel(wheels, "owls", "1.0", "", needs="numpy>=9")
    return tmp_path / "requirements.txt"


@pytest.mark.parametrize("flavour", ["local", "cpu"])
def test_what_it_names_is_locked_and_lies_in_a_folder_of_its_own(
    beside: Path, flavour: str
) -> None:
    assert packages.find_beside(beside.with_name("mine.py")) is None
    beside.write_text(f"{FROM}robins\n")
    assert packages.find_beside(beside.with_name("mine.py")) == beside
    folder = packages.prepare(beside, flavour)
    lines = (folder / "locked.txt").read_text().splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["robins==1.0", "wrens==2.0"]
    assert all(re.search("--hash=sha256:[0-9a-f]{64}$", line) for line in lines)
    assert {"packages/robins.py", "packages/wrens.py", "packages/locked.txt"} <= {
        *packages.list_files(beside)
    }
    beside.with_name("wheels").rename(beside.with_name("gone"))
    assert packages.prepare(beside, flavour) == folder  # as it was chosen before
    kept = beside.with_name("versions") / "1" / "models" / "birds_onnx" / "packages"
    shutil.copytree(folder, kept)
    shutil.rmtree(folder)
    assert packages.prepare(beside, flavour, beside.with_name("versions")) == folder
    assert (folder / "robins.py").exists()


def test_a_copy_names_the_same_places(beside: Path, tmp_path: Path) -> None:
    beside.write_text("--find-links wheels\n-f none\n--no-index\nrobins==1.0  # -f wheels\n")
    copy = tmp_path / "copies" / "requirements.txt"
    packages.copy(beside, copy)
    assert copy.read_text().splitlines() == [
        *(f"--find-links {tmp_path}/wheels", "-f none", "--no-index", "robins==1.0  # -f wheels")
    ]


def test_what_the_server_has_is_not_installed_again(beside: Path) -> None:
    (version,) = re.findall(r"^certifi==(\S+)", packages.SERVERS.read_text(), re.MULTILINE)
    write_wheel(beside.with_name("wheels"), "certifi", version, "")
    beside.write_text(f"{FROM}certifi\nwrens==2.0\n")
    folder = packages.prepare(beside, "local")
    assert not (folder / "certifi.py").exists() and (folder / "wrens.py").exists()


@pytest.mark.parametrize(
    ("wanted", "reason"),
    {
        "numpy>=9": r"clashes with the server: it has numpy==\S+, and the file asks for numpy>=9",
        "owls": r"clashes with the server: it has numpy==\S+, and the file asks for owls",
        "sparrows": "cannot be installed .No matching distribution found for sparrows",
        "robins==7": "cannot be installed .No matching distribution found for robins==7",
    }.items(),
)
def test_what_cannot_be_is_said_in_one_line(beside: Path, wanted: str, reason: str) -> None:
    beside.write_text(f"{FROM}{wanted}\n")
    with pytest.raises(UserError, match=reason) as refused:
        packages.prepare(beside, "local")
    assert "\n" not in refused.value.cause
    assert not packages.HERE.exists() or not [*packages.HERE.iterdir()]


def test_a_gpus_server_takes_none(beside: Path) -> None:
    beside.write_text("robins\n")
    with pytest.raises(UserError, match="NVIDIA's server image takes no packages"):
        packages.prepare(beside, "gpu")
