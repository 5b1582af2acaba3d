"""What reaches the terminal."""

import io
import json
import subprocess
import sys
from subprocess import PIPE

import pytest
from rich.table import Table

from scripts.base import console, tables
from scripts.base.errors import UserError, run_guarded
from tests.project import ROOT

ODD = "\x1b]0;mine\x9ba\u202e"
SEEN = "\\x1b]0;mine\\x9ba\\u202e"


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def out(screen: io.StringIO) -> console.Output:
    return console.Output(file=screen, force_terminal=True, width=80, highlight=False)


def test_what_is_awaited_is_no_markup() -> None:
    """A model's error, say."""
    with console.waiting("loading a [/b]") as waiting:
        waiting.show("expected [/INST] at the end")


def test_a_terminal_obeys_nothing_that_is_shown(out: console.Output, screen: io.StringIO) -> None:
    table = Table(ODD)
    table.add_row(ODD, style="bold")
    out.print(table, markup=False)
    out.print(f"- {ODD}", markup=False, soft_wrap=True)
    with out.status(ODD):
        pass
    assert screen.getvalue().count(SEEN) == 2  # and cut to the width of the table's columns
    assert not [code for code in ("\x1b]", "\x9b", "\u202e") if code in screen.getvalue()]
    assert "\x1b[1m" in screen.getvalue()  # rich's own codes stay


def test_nor_what_an_error_says(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> int:
        raise UserError(f"{ODD}\n{ODD}", "fix it")

    assert run_guarded(fails) == 1
    assert capsys.readouterr().err == f"error: {SEEN}\\n{SEEN}; fix it\n"


def test_what_reports_does_so_in_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.Form, "is_json", True)
    monkeypatch.setattr(console, "out", console.Output(highlight=False, width=console.ENDLESS))
    console.note("ready [bold]", version=3)
    tables.show("lrl", ("model", "v", "share"), ["main", ("birds", "2", "3.5"), ("owls", "", "1%")])
    tables.show("ll", (), [("Docker", "ok")])
    tables.show("lrlr", ("", "certain", "", "certain"), [("right", "50.0%", "1 of 2", "9%")])
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"says": "ready [bold]", "version": 3},
        {"says": "main"},
        {"model": "birds", "v": 2, "share": 3.5},
        {"model": "owls", "v": "", "share": "1%"},
        {"0": "Docker", "1": "ok"},
        {"0": "right", "certain": "50.0%", "2": "1 of 2", "certain 3": "9%"},
    ]


def test_who_reads_no_further_fails_nothing() -> None:
    """Such as `make status | head -1`."""
    program = """
import sys
from scripts.base import console, tables
from scripts.base.errors import run_guarded

def main():
    console.note("ready")
    sys.stdin.read()  # until nobody reads any more
    tables.show("ll", (), [("Docker", "ok")])
    return 3

sys.exit(run_guarded(main))
"""
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=ROOT, text=True) as run:
        assert run.stdin and run.stdout and run.stderr
        assert run.stdout.readline() == "- ready\n"
        run.stdout.close()
        run.stdin.close()
        assert run.stderr.read() == ""
    assert run.returncode == 0
