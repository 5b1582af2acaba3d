"""A model of a table, from its framework's file to answers, and to its next version."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from tests import axe
from tests.project import Project, error_lines
from tests.screens import page
from tests.screens.chromium import browser
from tests.tables import NAMES, ROLLED, asked, trained, without_a_network


@pytest.fixture
def own(served: Project) -> Iterator[Project]:
    yield (project := without_a_network(served))
    project.make("remove-model", NAME="flowers")


def test_from_a_file_of_xgboost_to_an_answer_and_to_the_next(own: Project, tmp_path: Path) -> None:
    first, second = (trained(tmp_path / f"flowers{seed}.json", seed) for seed in (0, 1))
    (tmp_path / "labels.txt").write_text("rose\ntulip\nlily\n")
    rows = tmp_path / "rows.csv"
    # Columns in another order, and one more, with quotes; a number that is missing.
    lines = ["weight,note,petal,sepal", '1.5,"red, 5",0.5,-1', ',5" tall,2.5,2', "0,red,0,0.25", ""]
    rows.write_text("\n".join(lines))
    sent = xgboost.DMatrix([[0.5, -1, 1.5], [2.5, 2, np.nan], [0, 0.25, 0]], feature_names=NAMES)
    options = {"NAME": "flowers", "FROM": str(tmp_path / "flowers0.json")}
    output = own.made(
        "add-model", **options, LABELS=str(tmp_path / "labels.txt"), SAMPLES=str(rows)
    )
    assert "flowers, serving flowers0.json" in output and "answers as flowers0.json" in output
    assert np.allclose(asked(own, rows), first.predict(sent), atol=1e-5)
    table = own.made("ask", MODEL="flowers", IN=str(rows))
    assert "label" in table and "tulip" in table and "%" in table
    ask_on_the_page(own, rows, first.predict(sent), tmp_path)

    narrow = xgboost.DMatrix(np.eye(3)[:, :2], [0, 1, 2])
    other = xgboost.train({"objective": "multi:softprob", "num_class": 3}, narrow, 1)
    other.save_model(tmp_path / "other.json")
    done = own.make("publish", MODEL="flowers", WEIGHTS=str(tmp_path / "other.json"))
    (line,) = error_lines(done.stderr + done.stdout)
    assert done.returncode and "other.json has other width than the pipeline" in line

    own.made("publish", MODEL="flowers", WEIGHTS=str(tmp_path / "flowers1.json"))
    output = own.made("rollout", MODEL="flowers", **ROLLED)
    assert "flowers version 2 is live; 0 of" in output
    assert np.allclose(asked(own, rows), second.predict(sent), atol=1e-5)
    assert "version 2 live (rollout)" in own.made("history", MODEL="flowers")
    assert "removed: flowers" in own.made("remove-model", NAME="flowers")


def ask_on_the_page(own: Project, rows: Path, expected: NDArray[np.float32], scratch: Path) -> None:
    """A dropped file; then rows as a spreadsheet gives them, and too few numbers."""
    labels = np.array(["rose", "tulip", "lily"])
    with browser(scratch) as tab:
        tab.look()
        page.opened(tab, own.settings["HTTP_PORT"], "flowers")
        tab.drop(rows)
        page.until_answered(tab)
        assert tab.text("#spoken") == "rows.csv: 3 answers"
        head, *lines = (line.split("\t") for line in tab.text(".answer table").splitlines())
        assert head == ["Row", "label", *labels]
        assert [line[1] for line in lines] == labels[expected.argmax(1)].tolist()
        shares = [[float(cell.removesuffix(" %")) for cell in line[2:]] for line in lines]
        assert np.allclose(shares, 100 * expected, atol=0.06)
        for count, typed in enumerate(("0,5\\t-1\\t1.5", "0,5;-1;1,5", "1,2"), 2):
            tab.run(f"document.getElementById('words').value = '{typed}'")
            tab.run("document.querySelector('#text button').click()")
            page.until_answered(tab, count)
            if count < 4:
                assert tab.text(".answer tbody") == "\t".join(["1", *lines[0][1:]])
        assert tab.text(".answer .error") == "Line 1: 2 cells.\nGive 3 in each line."
        for dark in (False, True):
            tab.look(dark=dark)
            assert axe.violations(tab, axe.script()) == []
        tab.look(width=360, height=700)
        assert tab.run("document.documentElement.scrollWidth") <= 360
        assert tab.console == []


def test_what_cannot_be_served_leaves_nothing(own: Project, tmp_path: Path) -> None:
    trained(tmp_path / "flowers.json", 0)
    (tmp_path / "few.csv").write_text("1,2\n")
    (tmp_path / "model.pkl").touch()
    for given, cause in (
        ({"FROM": "model.pkl"}, "is a pickle, which runs code"),
        ({"FROM": "flowers.json", "SAMPLES": str(tmp_path / "few.csv")}, "line 1: 2 cells"),
        ({"FROM": "flowers.json", "WEIGHTS": "random"}, "is already a complete model; omit"),
    ):
        words = given | {"FROM": str(tmp_path / given["FROM"])}
        done = own.make("add-model", NAME="flowers", **words)
        (line,) = error_lines(done.stderr + done.stdout)
        assert done.returncode and cause in line
    assert not (own.path / "own" / "recipes" / "flowers.yaml").exists()
    assert not (own.path / "build" / "versions" / "flowers").exists()
