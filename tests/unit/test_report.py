"""The report of make bench, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.measuring import report, results
from scripts.measuring.compare import CAUSES, CIRCUMSTANCES
from tests import axe
from tests.chromium import Tab, browser
from tests.shown import measurements

MACHINE = {"processor": "A processor with a name of some length @ 2.10GHz", "cores": 2}
SERVED = {"precision": "bf16", "flavour": "local"}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    folder = tmp_path_factory.mktemp("report")
    write(folder)
    with browser(tmp_path_factory.mktemp("chromium")) as tab:
        tab.look()
        tab.open((folder / "report.html").as_uri())
        yield tab


def write(folder: Path) -> None:
    parts: dict[str, object] = {part: {} for part in (*CIRCUMSTANCES, *CAUSES)}
    about = parts | {"machine": MACHINE, "served": SERVED, "title": "mobilenet_v2"}
    about |= {"rounds": 3, "most_rounds": 9, "most_spread": 0.15}
    found = measurements()
    report.write(folder, results.as_dict("2026-11-26", about, found), found, None)


def test_a_sentence_says_what_the_figures_mean(tab: Tab) -> None:
    assert tab.text(".told").startswith(
        "A picture of 8.5 MP costs 39.2 times one of holiday-photos"
    )
    assert not tab.run("document.querySelector('details').open")


def test_it_fits_a_telephone_and_a_dark_screen(tab: Tab) -> None:
    drawn: list[str] = []
    for dark in (False, True):
        tab.look(390, 844, dark)
        assert tab.run("document.documentElement.scrollWidth") <= 390
        assert axe.violations(tab, axe.script()) == []
        line = "document.querySelector('#throughput svg path[style*=\"var(--line-0)\"]')"
        drawn.append(tab.run(f"getComputedStyle({line}).stroke"))
    assert drawn[0] != drawn[1]
    assert tab.console == []
