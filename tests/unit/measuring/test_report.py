"""The reports of make bench and make eval, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from scripts.evaluation.figures import compute_figures
from scripts.evaluation.labelled import Item
from scripts.evaluation.scores import Answers
from scripts.measuring import results
from scripts.measuring.report import evaluation, report
from scripts.measuring.results import CAUSES, CIRCUMSTANCES
from tests import axe
from tests.screens.chromium import Tab, browser
from tests.shown.measuring import measurements

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


def write_evaluation(folder: Path) -> None:
    random, classes = np.random.default_rng(0), [f"a bird with a long name {n}" for n in range(12)]
    truth = np.arange(240) % 12
    first = np.where(random.random(240) < 0.9, truth, random.integers(0, 12, 240))
    answers = Answers(classes, truth, first[:, None], random.uniform(0.4, 1, 240))
    Image.new("RGB", (300, 200), "teal").save(folder / "bird.jpg")
    items = [Item(f"{number}.jpg", "", folder / "bird.jpg") for number in range(240)]
    about = {"title": "birds", "data": "val", "when": "2026-11-26", "network": "n", "classes": 12}
    original = ("PyTorch", truth)
    figures = compute_figures(answers, np.full(240, 9.0), 2, {"broken.jpg": "no picture"}, original)
    told = evaluation.warnings(figures, 1, "build/eval")
    evaluation.write(folder, {**about, "together": 4}, figures, answers, items, told)


def test_an_evaluation_fits_a_telephone_and_a_dark_screen(tab: Tab, tmp_path: Path) -> None:
    write_evaluation(tmp_path)
    tab.open((tmp_path / "report.html").as_uri())
    for dark in (False, True):
        tab.look(390, 844, dark)
        assert tab.run("document.documentElement.scrollWidth") <= 390
        assert axe.violations(tab, axe.script()) == []
    assert tab.text("h1") == "How right is birds?" and tab.console == []
