"""`make bench` with the real perf_analyzer, against the local server; its report in a browser."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import bundle_client
from scripts.measuring.perf_analyzer import LIBB64_REMEDY, has_libb64
from tests.plugin import ON_A_GPU
from tests.project import ROOT, Project, error_lines, interrupt, wait_until
from tests.screens.browser import opened

pytestmark = [
    pytest.mark.skipif(not has_libb64(), reason=f"no perf_analyzer here: {LIBB64_REMEDY}"),
    pytest.mark.parametrize("served", ["local", ON_A_GPU], indirect=True),
]

PICTURES = ("8.5 MP", "500x375")
EARLIER = ROOT / "tests" / "recorded" / "results.json"


@dataclass
class Run:
    output: str
    folder: Path
    network: str


@pytest.fixture(scope="module")
def run(served: Project) -> Run:
    output = served.made("bench", QUICK="1", COMPARE=str(EARLIER))
    (report,) = re.findall(r"report: (\S+)$", output, re.MULTILINE)
    return Run(output, (served.path / report).parent, served.network)


def test_everything_was_asked_and_answered(run: Run) -> None:
    """How fast is the machine's own business."""
    results = json.loads((run.folder / "results.json").read_text())
    assert {one["inputs"] for one in results["measurements"]} == {*PICTURES, "pixels"}
    for one in results["measurements"]:
        assert len(one["rounds"]) >= results["rounds"]  # more of what was uncertain
        assert one["cpu_ms"][run.network] > 0
        for sample in one["rounds"]:
            assert not sample["failure"], one["name"]
            assert 0 < sample["p50"] <= sample["p95"] <= sample["p99"]
        if one["target"] == "ensemble":
            steps = [step["name"] for step in one["waterfall_ms"]["steps"]]
            assert steps == ["preprocessing", run.network, "postprocessing"]
    rows = list(csv.DictReader((run.folder / "results.csv").open()))
    assert len(rows) == len(results["measurements"])


def test_the_report_names_what_was_measured_on_what(run: Run) -> None:
    results = json.loads((run.folder / "results.json").read_text())
    assert results["machine"]["cores"] >= 1
    assert results["served"]["network"] == "mobilenet_v2"
    assert results["versions"]["tritonserver"]
    assert results["versions"]["triton-bundle"] == bundle_client.__version__
    assert results["models"][run.network]["instances"] >= 1


def test_nothing_else_is_left(run: Run) -> None:
    files = {path.name for path in run.folder.iterdir()}
    plots = {"throughput.png", "latency.png", "waterfall.png"}
    assert files == {"report.html", "results.json", "results.csv", *plots}
    assert not list(run.folder.parent.glob(".*"))


def test_the_terminal_shows_the_same(run: Run) -> None:
    assert "pictures/s" in run.output and "bare network, pixels, grpc" in run.output
    assert "x " in run.output.split("against ")[1] and "processor time" in run.output


def test_the_report_in_a_browser(run: Run, tmp_path: Path) -> None:
    page = opened(run.folder / "report.html", tmp_path)
    assert page.console == []
    assert [plot["id"] for plot in page.plots] == ["throughput", "latency", "waterfall"]
    for plot in page.plots:
        assert plot["width"] > 500 and plot["height"] > 50 and plot["shapes"] > 0
    assert page.wide <= 0
    for words in (
        "How fast is ensemble_python_resnet50, serving mobilenet_v2?",
        "How to read it",
        "Measured on",
        "Compared with ",
    ):
        assert words in page.text


def test_the_report_needs_nothing_beside_it(run: Run) -> None:
    page = (run.folder / "report.html").read_text()
    linked = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(link.startswith(("#", "data:")) for link in linked)
    assert "@import" not in page and "url(http" not in page


def test_ctrl_c_leaves_no_half_report(served: Project) -> None:
    reports = served.path / "build" / "bench"
    before = sorted(reports.glob("*"))
    make = served.start_make("bench", QUICK="1")
    wait_until(lambda: list(reports.glob(".*/scratch/*.csv")), "a first measurement")
    output = interrupt(make)
    assert "measuring ensemble_python_resnet50, serving" in output
    assert "interrupted" in output and "Traceback" not in output
    assert sorted(reports.glob("*")) == before and not list(reports.glob(".*"))


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ("COMPARE=Makefile", "not a result of this benchmark"),
        ("IMAGES=scripts", "no picture"),
        ("MODEL=smells", "MODEL=smells is not a pipeline"),
    ],
)
def test_what_cannot_be_done_is_one_line(served: Project, setting: str, cause: str) -> None:
    refused = served.make("bench", setting)
    assert refused.returncode != 0
    (line,) = error_lines(refused.stderr)
    assert cause in line and "Traceback" not in refused.stderr
