"""What IMG= may be."""

import os
import subprocess
from pathlib import Path

import pytest

from scripts.base.errors import UserError
from scripts.recipes import asking
from tests.project import ROOT


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.jpg", "b.jpg", "two words.jpg", "[odd].jpg", "Ann's.jpg", "deep/c.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.jpg", ["a.jpg"]),
        ("a.jpg b.jpg", ["a.jpg", "b.jpg"]),
        ("[ab].jpg", ["a.jpg", "b.jpg"]),
        ("?.jpg nowhere.jpg", ["a.jpg", "b.jpg", "nowhere.jpg"]),
        ("**/c.*", ["deep/c.jpg"]),
        ("~/a.jpg ~/deep/*", ["~/a.jpg", "~/deep/c.jpg"]),
        ("~/two words.jpg", ["~/two words.jpg"]),
        ("two words.jpg", ["two words.jpg"]),
        ("'two words.jpg' a.jpg", ["two words.jpg", "a.jpg"]),
        ("[odd].jpg", ["[odd].jpg"]),
        ("Ann's.jpg", ["Ann's.jpg"]),
        ("https://example.org/a.jpg?b=[c]", ["https://example.org/a.jpg?b=[c]"]),
        ("a.jpg " * 60, ["a.jpg"] * 60),
        ("~no-such-user/a.jpg a.jpg", ["~no-such-user/a.jpg", "a.jpg"]),
        ("-", ["-"]),
    ],
)
def test_whatever_the_shell_left_in_it(text: str, found: list[str]) -> None:
    assert asking.find_sources(text) == [
        name.replace("~/", f"{os.environ['HOME']}/") for name in found
    ]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no picture given"),
        ('"x', "has a quote that is not closed"),
        ("*.png", r"\*\.png matches no file"),
        ("nowhere.jpg none.jpg", "IMG=nowhere.jpg none.jpg: no such file"),
    ],
)
def test_what_names_nothing_is_refused(text: str, cause: str) -> None:
    with pytest.raises(UserError, match=cause):
        asking.find_sources(text)


def test_one_is_no_more_than_one() -> None:
    assert asking.find_one_picture("a.*", "similar") == "a.jpg"
    with pytest.raises(UserError, match="names 2 pictures"):
        asking.find_one_picture("?.jpg", "similar")


@pytest.mark.parametrize("by_environment", [True, False])
def test_make_passes_it_on_as_it_was_typed(by_environment: bool, tmp_path: Path) -> None:
    name = "a$b $(shell touch made)#`c`.jpg"
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\nshow:\n\t@printenv IMG\n")
    words = [] if by_environment else [f"IMG={name}"]
    shown = subprocess.run(
        ["make", "--no-print-directory", "show", *words],
        env=os.environ | ({"IMG": name} if by_environment else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"{name}\n" and not (tmp_path / "made").exists()
