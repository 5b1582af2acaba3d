"""How fast the cascade is beside its large network, and who answers."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from tests.project import Project, picture
from tests.screens.browser import opened


@pytest.mark.rare
@pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}")
@pytest.mark.parametrize("served", ["local"], indirect=True)
def test_it_is_measured_beside_its_large_network(
    with_cascade: Project, assets: Path, tmp_path: Path
) -> None:
    """Of the photo it is sure, of the noise it is not."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    shutil.copy(assets / "images" / "vulture.jpeg", pictures)
    (pictures / "noise.jpg").write_bytes(picture())
    output = with_cascade.made("bench", MODEL="cascade", QUICK="1", IMAGES=str(pictures))
    assert "threshold 0.5: 1 of 2 passed on" in output
    (report,) = re.findall(r"report: (\S+)$", output, re.MULTILINE)
    page = with_cascade.path / report
    results = json.loads((page.parent / "results.json").read_text())
    assert {one["target"] for one in results["measurements"]} == {"cascade", "ensemble"}
    assert not any(sample["failure"] for m in results["measurements"] for sample in m["rounds"])
    found = results["cascade"]
    division = found["pictures"]["pictures"]
    assert found["threshold"] == 0.5 and (division["pictures"], division["passed_on"]) == (2, 1)
    assert division["agree"] >= 1  # on what it passes on, it is the large network's answer
    rows = list(csv.DictReader((page.parent / "results.csv").open()))
    assert {row["passed_on"] for row in rows} == {"0.5", ""}
    shown = opened(page, tmp_path)
    assert shown.console == [] and shown.wide <= 0
    assert "mobilenet_v2 and mobilenet_v2" in shown.text and "Who answers" in shown.text
