"""The proof that a user with a GPU can give: its rows, and what stands in its report."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from scripts.measuring import proof
from scripts.measuring.proof import ROWS, STEPS, Outcome, Row
from tests.project import ROOT


def test_its_rows_are_those_of_the_docs() -> None:
    table = (ROOT / "docs" / "gpu.md").read_text().partition("| to be confirmed |")[2]
    claims = re.findall(r"^\| ([^|]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    assert claims[0] == ROWS[0].claim and claims == [row.claim for row in ROWS]
    assert {row.step for row in ROWS} <= {step.name for step in STEPS}


def test_a_row_is_judged_by_the_output_of_its_step() -> None:
    row = Row("It works", "up", r"\d+ of \d+ layers")
    for outcome, confirmed, words in (
        (Outcome("up", 0, 1, ["built", "  9 of 16 layers"]), True, "9 of 16 layers"),
        (Outcome("up", 0, 1, ["built"]), False, "did not print this"),
        (Outcome("up", 1, 1, ["9 of 16 layers", "error: it broke; fix it"]), False, "it broke"),
    ):
        verdict = proof._judge_row(row, [outcome])
        assert verdict.confirmed == confirmed and words in verdict.words


def test_nobody_is_named(tmp_path: Path) -> None:
    text = f"in {tmp_path}/build on {platform.node()} by {Path.home()}/x, from {ROOT}/.env"
    kept = proof.anonymous(text, tmp_path)
    for word in (str(tmp_path), platform.node(), str(Path.home()), str(ROOT)):
        assert word not in kept
    assert "/build" in kept
