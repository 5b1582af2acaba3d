"""What commands show in terminals of 80 and 120 columns, in a pipe, and without colours."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

import pytest

from scripts.program import verbs
from scripts.stacks import exposure
from tests.project import ROOT
from tests.screens.terminals import CODES, typed, what_stays
from tests.shown.every import find_reasons, find_shown

SHOWN = find_shown()
PROGRAM = (sys.executable, "-m", "tests.shown")
# What changes with the width.
DRAWN = re.compile("[█▏]")
BEGINS = re.compile(r"^=== (.+)$", re.MULTILINE)
# Ways to write that are no notes.
WRITES = re.compile(r"\btables\.show\(|\bprint\(")
COLOURED = re.compile(r"\x1b\[[\d;]*3\d")


def environment(**more: str) -> dict[str, str]:
    kept = {name: word for name, word in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    return kept | more


@cache
def in_a_terminal(columns: int, **more: str) -> dict[str, list[str]]:
    written = typed(PROGRAM, ROOT, environment(**more), columns)
    return split("\n".join(what_stays(written)))


@cache
def in_a_pipe(**more: str) -> dict[str, list[str]]:
    told = subprocess.run(
        PROGRAM,
        env=environment(PYTHONUNBUFFERED="1", **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    )
    return split(told.stdout)


def split(written: str) -> dict[str, list[str]]:
    """By command, without what only a pipe is told: what is waited for."""
    _, *parts = BEGINS.split(written)
    return {
        name: [line for line in text.splitlines() if line and not line.endswith(" …")]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def words(lines: Sequence[str]) -> list[str]:
    """Apart from what is another one each time: a trace, and times."""
    text = " ".join(DRAWN.sub("", CODES.sub("", line)) for line in lines)
    return re.sub(
        r"[0-9a-f]{32}|(?<=grep )[0-9a-f]{8}|\d{8}T\d{6}Z|\d\d:\d\d:\d\d", "TRACE", text
    ).split()


def test_each_command_is_shown_or_has_its_reason() -> None:
    known = verbs.read()
    commands = {name for name, verb in known.items() if verb.about} | {*verbs.OF_PROGRAM}
    shown = {name.partition(":")[0] for name in SHOWN}
    notes, elsewhere = map(find_reasons, ("NOTES_ALONE", "ELSEWHERE"))
    listed = [*shown, *notes, *elsewhere]
    assert sorted(listed) == sorted(commands), set(listed) ^ commands
    paths = {name: ROOT.joinpath(*known[name].module.split(".")) for name in notes}
    assert not [
        name for name, path in paths.items() if WRITES.search(path.with_suffix(".py").read_text())
    ]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", SHOWN)
def test_nothing_is_cut_off_and_no_word_is_broken(command: str, columns: int) -> None:
    lines = in_a_terminal(columns)[command]
    shown, told = words(lines), words(in_a_pipe()[command])
    assert told
    if command.endswith("many classes"):  # a list, as no terminal is so wide
        shown = sorted({word.strip(",") for word in shown})
        told = sorted(set(told))
    assert shown == told
    plain = [CODES.sub("", line) for line in lines]
    assert not [line for line in plain if re.search(r"\d…|…\d", line)]
    # Only a word that is longer than the terminal is wide stands out.
    assert not [line for line in plain if len(line) > columns and len(line.split()) > 1]


@pytest.mark.parametrize("command", SHOWN)
def test_a_row_is_one_line_in_a_pipe(command: str) -> None:
    lines = in_a_pipe()[command]
    assert not [line for line in lines if CODES.search(line)]
    assert not [line for line in lines if line.startswith("     ") and command == "models"]
    assert len(lines) <= len(in_a_terminal(120)[command])


@pytest.mark.parametrize("command", SHOWN)
def test_no_colour_where_none_is_wanted(command: str) -> None:
    plain = in_a_terminal(80, NO_COLOR="1")[command]
    assert not [line for line in plain if COLOURED.search(line)]
    assert words(plain) == words(in_a_terminal(80)[command])


def test_a_program_gets_lines_of_json() -> None:
    """But for help; what asks a picture or a text is told of it apart."""
    others = {"help", "classify", "demo", "detect", "segment", "sentiment"}
    told = in_a_pipe(JSON="1")
    for command in SHOWN.keys() - others:
        said = [line for line in told[command] if not line.startswith("error: ")]
        assert said and all(map(json.loads, said)), command
    assert json.loads(told["demo"][-1])["says"].endswith("make help")


def test_one_sentence_comes_first() -> None:
    shown = in_a_pipe()
    assert shown["bench"][0].startswith("A picture of 8.5 MP costs 39.2 times one of holiday")
    assert shown["rivals"][0] == "2.7 times as fast as textbook, fastapi, bentoml."
    begins = "ready · mobilenet_v2 v12 · bf16 · http://127.0.0.1:8000 · "
    assert shown["status"][0].startswith(begins)


def test_only_processes_that_take_more_than_a_twentieth_are_named() -> None:
    (line, *_) = (each for each in in_a_pipe()["bench"] if each.startswith("1180.5"))
    assert line.endswith("resnet50_onnx 1031.4, bundle_door 112.7, others 36.3")


def test_a_server_that_is_open_to_others_is_shown_where_they_reach_it() -> None:
    assert exposure.find_shown_host("127.0.0.1") == "" == exposure.find_shown_host("192.0.2.7")
    assert exposure.find_shown_host("0.0.0.0") not in ("0.0.0.0", "127.0.0.1")
