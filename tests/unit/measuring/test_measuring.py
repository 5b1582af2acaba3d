"""From perf_analyzer's and Triton's own words to a figure, or to the refusal of one."""

import csv
import dataclasses
import io
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bundle_serving.address import Address
from bundle_serving.pictures import Transform
from scripts.artefacts.workspace import Workspace
from scripts.base import files
from scripts.base.errors import UserError
from scripts.measuring import division, machine, perf_analyzer, photos, results, rounds, server_side
from scripts.measuring.confidence import Estimate
from scripts.measuring.division import Division, list_untrained
from scripts.measuring.measurement import (
    Measurement,
    Sample,
    compare_with,
    count_shares,
    share_rows,
)
from scripts.measuring.photos import Inputs
from scripts.measuring.report import plots
from scripts.measuring.report.report import headlines
from scripts.measuring.results import CAUSES, CIRCUMSTANCES, compare
from scripts.measuring.server_side import Counters
from scripts.measuring.workload import (
    Configuration,
    Subject,
    Target,
    a_few,
    everything,
    side_by_side,
)
from scripts.stacks import gpu
from scripts.stacks.state import State
from tests.project import ROOT, Project, picture

# What a real run on a real server left.
RECORDED = ROOT / "tests" / "recorded"
STATISTICS = json.loads((RECORDED / "statistics.json").read_text())
STEPS = ("preprocessing", "resnet50_onnx", "postprocessing")
PIPELINE = "ensemble_python_resnet50"

AT = (Address("host", 1), Address("host", 2))
ENSEMBLE = Target("ensemble", PIPELINE, *AT, "INPUT", STEPS)
NETWORK = Target("bare network", "resnet50_onnx", *AT, "input", STEPS[1:2])
CASCADE = Target("cascade", "cascade", *AT, "INPUT", STEPS)
SMALL = Inputs("small", (b"ab", b"abcd"))
PIXELS = Inputs("pixels", (b"abc",), (3, 1, 1))
RECIPE = Transform(resize=8, crop=8)


def recorded() -> dict[str, Counters]:
    before, after = (server_side.parse_counters(STATISTICS[when]) for when in ("before", "after"))
    return server_side.subtract_counters(before, after)


def measured(
    *throughputs: float,
    target: Target = ENSEMBLE,
    inputs: Inputs = SMALL,
    concurrency: int = 4,
    failure: str = "",
) -> Measurement:
    samples = [
        Sample(t, 100 / t, 100 / t, 200 / t, 300 / t, 50, number=number)
        for number, t in enumerate(throughputs)
    ]
    if failure:
        samples.append(Sample(failure=failure))
    asked = Configuration(target, inputs, "grpc", 1, concurrency)
    return Measurement(asked, tuple(samples))


def found(*measurements: Measurement, **about: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {part: {} for part in (*CIRCUMSTANCES, *CAUSES)}
    text = json.dumps(results.as_dict("then", parts | about, list(measurements)))
    read: dict[str, Any] = json.loads(text)
    return read


def test_a_figure_is_the_median_of_its_rounds() -> None:
    one = measured(50, 53, 51)
    assert one.stable
    assert one.throughput == Estimate(51, 50, 53)
    assert one.requests == 150


def test_rounds_that_differ_make_a_figure_uncertain() -> None:
    one = measured(50, 40, 51)
    assert not one.stable and "differ by 22%" in one.why_unstable
    more = measured(50, 40, 51, *[50, 51] * 3)
    assert more.stable and more.throughput == Estimate(50, 50, 51)


def test_what_was_measured_in_turn_is_compared_round_by_round() -> None:
    ours, theirs = [10.0, 20, 30, 11, 21], [20.0, 40, 60, 22, 42]
    assert Estimate.ratio(ours, theirs) == Estimate(0.5, 0.5, 0.5)
    apart = Estimate.ratio_of(ours, theirs)
    assert apart.low < apart.median == 0.5 < apart.high


def test_what_is_uncertain_is_measured_again_with_what_it_is_compared_with() -> None:
    network = partial(measured, target=NETWORK, inputs=PIXELS)
    steady, shaky = measured(50, 51, 50), measured(10, 20, 30, concurrency=8)
    failed = measured(50, failure="no answer in time", concurrency=1)
    others = network(60, 61, 60), network(60, 61, 60, concurrency=8)
    assert rounds.unsure([steady, shaky, failed, *others]) == [1, 4]
    assert rounds.unsure([steady, failed, network(9, 60, 99)]) == [0, 2]


def test_rounds_are_in_turn_and_what_is_unsure_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steady, shaky = (Configuration(ENSEMBLE, SMALL, "grpc", 1, each) for each in (1, 8))
    rates = {1: iter([50.0, 50.0]), 8: iter([9.0, 10.0, 30.0, 20.0, 20.0])}
    asked: list[int] = []

    def take(_: object, one: Configuration, seconds: float) -> Sample:
        asked.append(one.concurrency)
        return Sample(next(rates[one.concurrency]), requests=1)

    monkeypatch.setattr(rounds, "_sample", take)
    analyzer: Any = None
    _, found = rounds.measure([steady, shaky], analyzer, 2, 4, 2.0)
    assert asked == [8, 1, 8, 1, 8, 8, 8]  # the first to warm up
    assert [each.number for each in found.samples] == [0, 1, 2, 3]
    assert "- round 1 of 2, 0:12 left" in capsys.readouterr().out


def test_processor_time_per_picture() -> None:
    before, after = (
        server_side.parse_processes(
            f'bundle_process_cpu_seconds_total{{process="envoy"}} {seconds}\n'
        )
        for seconds in (2.5, 4.5)
    )
    assert server_side.per_picture(before, after | {"new": 1.0}, 1000) == {"envoy": 2, "new": 1}
    assert server_side.per_picture(after, before, 1000) == {"envoy": 2.5}  # it began anew
    assert server_side.per_picture(before, after, 0) == {}


def test_a_failed_request_is_no_figure() -> None:
    assert measured(50, 50, failure="3 requests failed").why_unstable == "3 requests failed"
    assert not measured(failure="no answer in time").stable


def test_the_waterfall_of_a_real_run() -> None:
    flow = server_side.make_waterfall(PIPELINE, STEPS, recorded(), client=111.0)
    assert flow
    assert [step.name for step in flow.steps] == list(STEPS)
    _, network, _ = flow.steps
    # perf_analyzer's own account of the same run, in the file beside; its windows leave out what
    # was on its way at the end.
    assert network.total == pytest.approx(97.1, rel=0.1)
    assert network.queue == pytest.approx(18.5, rel=0.1)
    assert network.batch == pytest.approx(76 / 61, rel=0.05)
    assert flow.wire == pytest.approx(111 - flow.server)
    parts = flow.wire + sum(step.total for step in flow.steps) + flow.overhead
    assert parts == pytest.approx(flow.client, rel=0.02)


def test_rounds_are_counted_together() -> None:
    twice = server_side.add_counters([recorded(), recorded()])
    assert twice[PIPELINE]["requests"] == 2 * recorded()[PIPELINE]["requests"]
    once, double = (
        server_side.make_waterfall(PIPELINE, STEPS, c, 111.0) for c in (recorded(), twice)
    )
    assert once == double


def test_a_server_that_counted_nothing_has_no_waterfall() -> None:
    nothing = server_side.subtract_counters(recorded(), recorded())
    assert server_side.make_waterfall(PIPELINE, STEPS, nothing, client=1.0) is None


def test_a_step_that_few_requests_take_counts_as_much_less() -> None:
    counted = {
        "cascade": Counters(requests=10, total=100_000_000),
        "small": Counters(requests=10, pictures=10, executions=5, compute=20_000_000),
        "large": Counters(requests=2, pictures=2, executions=2, compute=40_000_000),
    }
    flow = server_side.make_waterfall("cascade", ("small", "large"), counted, client=11.0)
    assert flow and [step.total for step in flow.steps] == [2, 4]
    assert (flow.wire, flow.overhead) == (1, 4)


def test_one_step_is_shown_by_the_parts_that_it_reports() -> None:
    """Each as long as it worked, of what Triton counted; none is lost."""
    whole = Counters(requests=10, total=130_000_000)
    one = Counters(
        requests=10, pictures=10, executions=5, queue=10_000_000, compute=90_000_000,
        input=5_000_000, output=5_000_000,
    )  # fmt: skip
    counted = {PIPELINE: whole, "resnet50_onnx": one}
    target = dataclasses.replace(ENSEMBLE, steps=("resnet50_onnx",), parts=STEPS)
    parts = [{STEPS[0]: 0.02, STEPS[1]: 0.06, STEPS[2]: 0.01}, {STEPS[0]: 0.02, STEPS[1]: 0.06}]
    samples = [Sample(50, mean=14, requests=5, counted=counted, parts_s=each) for each in parts]
    flow = Measurement(Configuration(target, SMALL, "grpc", 1, 4), tuple(samples)).waterfall
    assert flow and [each.name for each in flow.steps] == list(STEPS)
    assert [each.total for each in flow.steps] == pytest.approx(
        [1.5 + 9 * 4 / 17, 108 / 17, 1.0294117]
    )
    assert sum(each.total for each in flow.steps) == pytest.approx(11)
    pixels = dataclasses.replace(NETWORK, parts=STEPS)
    asked = Configuration(pixels, PIXELS, "grpc", 1, 4)
    only = Sample(50, mean=14, requests=5, counted=counted, parts_s={STEPS[1]: 0.06})
    alone = Measurement(asked, (only,)).waterfall
    assert alone and [each.name for each in alone.steps] == ["resnet50_onnx"]


def test_how_long_each_step_worked() -> None:
    name = "bundle_step_duration_seconds"
    told = (
        f'{name}_sum{{model="a",version="1"}} 1.5\n{name}_sum{{model="a",version="2"}} 2\n'
        f'{name}_count{{model="a",version="1"}} 9\n'
    )
    assert server_side.parse_steps(told) == {"a": 3.5}


def test_what_perf_analyzer_reports() -> None:
    report = (RECORDED / "perf_analyzer.csv").read_text()
    figures = perf_analyzer.parse(report, (RECORDED / "perf_analyzer.txt").read_text())
    assert figures.throughput == pytest.approx(34.5633)
    assert (figures.p50, figures.p95, figures.p99) == (107.832, 193.390, 241.783)
    assert figures.requests == 76


def test_why_perf_analyzer_gave_up() -> None:
    output = (
        "Request concurrency: 4\nFailed to maintain requested inference load. Worker thread(s) "
        "failed to generate concurrent requests.\nThread [0] had error: not a picture\n\n"
    )
    assert perf_analyzer.reason(output) == "not a picture"
    assert perf_analyzer.reason("") == "no message"


def test_pictures_of_one_request_share_a_length() -> None:
    whole = json.loads(perf_analyzer.input_data(SMALL, "INPUT", padded=False))["data"]
    padded = json.loads(perf_analyzer.input_data(SMALL, "INPUT", padded=True))["data"]
    assert [row["INPUT"]["shape"] for row in whole] == [[2], [4]]
    assert [row["INPUT"]["shape"] for row in padded] == [[4], [4]]
    pixels = json.loads(perf_analyzer.input_data(PIXELS, "input", padded=False))["data"]
    assert pixels[0]["input"]["shape"] == [3, 1, 1]


@pytest.mark.parametrize("choose", [a_few, everything])
def test_what_is_measured(choose: Any) -> None:
    rival = Target("rival", "other", Address("host", 3), Address("host", 4), "INPUT", ("other",))
    chosen = choose(ENSEMBLE, NETWORK, [rival], [SMALL], PIXELS)
    names = [one.name for one in chosen]
    assert len(set(names)) == len(names)
    for target in (ENSEMBLE, NETWORK, rival):
        assert any(one.target == target and one.concurrency == 4 for one in chosen)


def test_the_ensemble_beside_the_bare_network() -> None:
    ensemble, network = measured(45, 45), measured(50, 50, target=NETWORK, inputs=PIXELS)
    beside = compare_with(ensemble, [ensemble, network])
    assert beside and beside.share.median == pytest.approx(0.9)
    assert beside.added == pytest.approx(100 / 45 - 100 / 50)
    assert (
        compare_with(ensemble, [measured(9, target=NETWORK, failure="no answer in time")]) is None
    )


def test_the_cascade_beside_the_ensemble_on_the_same_pictures() -> None:
    cascade, ensemble = measured(75, 75, target=CASCADE), measured(50, 50)
    beside = compare_with(cascade, [cascade, ensemble])
    assert beside and beside.share.median == pytest.approx(1.5)
    assert compare_with(cascade, [measured(50, 50, inputs=Inputs("others", (b"c",)))]) is None


def test_the_cascade_and_its_large_network_are_asked_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = {"first": "small", "then": "large", "threshold": "0.8"}
    given = {
        CASCADE.model: [([0.9, 0.1], b"small"), ([0.2, 0.8], b"large")],
        ENSEMBLE.model: [([0.4, 0.6], b""), ([0.2, 0.8], b"")],
    }

    def answer(address: Address, model: str, questions: list[dict[str, Any]]) -> list[Any]:
        assert [bytes(each["INPUT"][0]) for each in questions] == list(SMALL.rows)
        return [
            {"OUTPUT": np.array([row], np.float32), "ANSWERED_BY": np.array([[by]], np.bytes_)}
            for row, by in given[model]
        ]

    monkeypatch.setattr(division, "choice", lambda _: rule)
    monkeypatch.setattr(division, "ask_tensors", answer)
    served: dict[str, Any] = {"weights": {}, "small weights": {}}
    asked = Subject("", (CASCADE, ENSEMBLE), served, ())
    found = division.measure_division(asked, [SMALL])["cascade"]["pictures"]
    assert found == {"small": {"pictures": 2, "passed_on": 1, "agree": 1}}


def test_both_are_asked_alike() -> None:
    asked = side_by_side([CASCADE, ENSEMBLE], [SMALL], (1, 4))
    asked_of = [(one.target.label, one.concurrency) for one in asked]
    assert asked_of == [("cascade", 1), ("cascade", 4), ("ensemble", 1), ("ensemble", 4)]


def test_how_the_cascade_divides_pictures() -> None:
    cascade = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]], np.float32)
    alone = np.array([[0.4, 0.6], [0.2, 0.8], [0.6, 0.4]], np.float32)
    found = Division.from_probabilities(["small", "large", "small"], "large", cascade, alone)
    assert found == Division(pictures=3, passed_on=1, agree=2)


def test_chance_is_named() -> None:
    trained, drawn = {"source": "mine.pth"}, {"source": "random"}
    served = {"network": "resnet50", "weights": drawn, "small network": "mobilenet_v2"}
    assert list_untrained(served | {"small weights": trained}) == ["resnet50"]
    assert list_untrained(served | {"small weights": drawn}) == ["mobilenet_v2", "resnet50"]


def test_the_headline_is_the_best_that_is_certain() -> None:
    best = headlines([measured(40, 41), measured(80, 20), measured(30, 30, concurrency=1)])
    assert [(one.what, one.value) for one in best] == [("ensemble, small", "40.5")]
    assert "answered in 3 ms" in best[0].note


def test_headlines_are_of_as_many_at_a_time() -> None:
    """Where a network's one stable figure is that of one at a time, the ensemble's four seem
    faster than it."""
    network = partial(measured, target=NETWORK, inputs=PIXELS)
    best = headlines(
        [
            measured(30, 30, concurrency=1),
            measured(80, 80),
            network(50, 50, concurrency=1),
            network(60, 120),
        ]
    )
    assert [(one.value, one.note.partition(";")[0]) for one in best] == [
        ("30.0", "1 at a time"),
        ("50.0", "1 at a time"),
    ]
    (ours, theirs) = headlines([measured(80, 80), network(60, 120)])
    assert (ours.value, theirs.value) == ("80.0", "90.0")
    assert theirs.note == "4 at a time, 60.0 to 120.0"
    (failed,) = headlines([measured(failure="no answer in time")])
    assert (failed.value, failed.note) == ("failed", "4 at a time: no answer in time")


def test_what_is_unstable_is_marked_on_the_plots_and_not_left_out() -> None:
    steady, shaky = measured(50, 51), measured(10, 20, concurrency=8)
    silent = measured(failure="no answer in time", concurrency=2)
    axes = plots.throughput([steady, shaky, silent]).axes[0]
    legend = axes.get_legend()
    assert legend and [text.get_text() for text in legend.get_texts()] == [
        "ensemble, small, grpc",
        "ensemble, small, grpc, 2 at a time: no answer in time",
        "unstable: where it lies with 95% certainty",
    ]
    assert {text.get_text() for text in axes.texts} == {"4", "8"}
    rows = [text.get_text() for text in plots.latencies([steady, shaky, silent]).axes[0].texts]
    assert rows[1:] == [
        "8  15  22   unstable: the rounds differ by 67%",
        "unstable: no answer in time",
    ]
    (panel,) = plots.waterfall([shaky]).axes
    assert panel.texts[0].get_text() == "unstable: the rounds differ by 67%"


def test_that_a_waterfall_is_unstable_is_written_beside_its_figures() -> None:
    step = Counters(requests=50, pictures=50, executions=50, compute=50 * 2_000_000)
    counted = {"ensemble": Counters(requests=50, total=50 * 2_000_000), "step": step}
    samples = (Sample(rate, 15, requests=50, counted=counted) for rate in (30.0, 60.0))
    target = dataclasses.replace(ENSEMBLE, model="ensemble", steps=("step",))
    asked = Configuration(target, SMALL, "grpc", 1, 4)
    figure = plots.waterfall([Measurement(asked, tuple(samples))])
    figure.savefig(io.BytesIO())
    texts = figure.axes[0].texts
    places = {text.get_text(): text.get_window_extent() for text in texts}
    (words,) = (place for text, place in places.items() if text.startswith("unstable"))
    assert len(places) == 4 and sum(words.overlaps(place) for place in places.values()) == 1


def test_csv_marks_what_is_unstable_and_has_no_figure_for_what_failed() -> None:
    failed = measured(10, failure="no answer in time", concurrency=1)
    never = measured(failure="no answer in time", concurrency=2)
    table = results.as_csv(found(measured(50, 51), measured(10, 20, concurrency=8), failed, never))
    steady, shaky, silent, none = csv.DictReader(io.StringIO(table))
    assert (steady["pictures_per_second"], steady["stable"]) == ("50.5", "True")
    assert float(steady["p50_ms"]) == pytest.approx((100 / 50 + 100 / 51) / 2)
    assert (shaky["pictures_per_second"], shaky["stable"]) == ("15.0", "False")
    assert (silent["pictures_per_second"], silent["p50_ms"]) == ("", "")
    assert (none["pictures_per_second_low"], none["pictures_per_second_high"]) == ("", "")
    assert (shaky["pictures_per_second_low"], shaky["pictures_per_second_high"]) == ("10.0", "20.0")


def test_csv_of_a_cascade_says_how_it_divides_pictures() -> None:
    division = {"pictures": 4, "passed_on": 1, "agree": 3}
    cascade = {"threshold": 0.5, "pictures": {"small": division}}
    table = results.as_csv(found(measured(75, 75, target=CASCADE), measured(50), cascade=cascade))
    ours, large = csv.DictReader(io.StringIO(table))
    assert (ours["threshold"], ours["passed_on"], ours["top1_agreement"]) == ("0.5", "0.25", "0.75")
    assert large["passed_on"] == ""


def test_what_changed_is_a_ratio() -> None:
    unknown = measured(9, failure="no answer in time", concurrency=8)
    old = found(measured(25, 25), unknown, machine={"cores": 2})
    new = found(
        measured(50, 50), measured(9, 9, concurrency=8), measured(9, 9, concurrency=1),
        machine={"cores": 4}, settings={"PRECISION": "bf16"},
    )  # fmt: skip
    comparison = compare(old, new)
    faster, failed = comparison.changes  # the third was not measured then
    assert faster.throughput == Estimate(2, 2, 2) and faster.p50 == Estimate(0.5, 0.5, 0.5)
    assert (failed.throughput, failed.note) == (None, "failed then")
    assert comparison.warnings == ["machine.cores: 2 -> 4"]
    assert comparison.causes == ["settings.PRECISION: none -> bf16"]


def test_only_our_own_results_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    ours = found(measured(50, 51))
    for content in ("no JSON", "[]", "{}", json.dumps(ours | {"schema": 0})):
        path.write_text(content)
        with pytest.raises(UserError, match="not a result of this benchmark"):
            results.load(path)
    with pytest.raises(UserError, match="cannot be read"):
        results.load(tmp_path / "missing.json")
    path.write_text(json.dumps(ours))
    assert results.load(path) == ours


def test_drawn_photos_are_as_large_as_real_ones() -> None:
    small = photos.draw(photos.SIZES["500x375"], seed=0)
    assert 40_000 < len(small) < 110_000
    assert Image.open(io.BytesIO(small)).size == (500, 375)
    assert small == photos.draw((500, 375), seed=0) != photos.draw((500, 375), seed=1)


def test_pictures_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.jpg").write_bytes(picture())
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    (sent,) = photos.read_or_draw(str(tmp_path))
    assert (sent.name, len(sent.rows)) == (tmp_path.name, 1)
    assert "skipped broken.jpg" in capsys.readouterr().out
    pixels = photos.pixels_of(sent, RECIPE)
    assert pixels.shape == (3, 8, 8)
    assert np.frombuffer(pixels.rows[0], np.uint8).size == 3 * 8 * 8


def test_whatever_a_folder_is_called_it_is_drawn(tmp_path: Path) -> None:
    """Two dollars would begin and end a formula, and what is no UTF-8 cannot be written."""
    folder = tmp_path / "caf\udce9 $5_{ to $10"
    folder.mkdir()
    (folder / "good.jpg").write_bytes(picture())
    (sent,) = photos.read_or_draw(str(folder))
    found = measured(50, 51, inputs=sent)
    assert plots.svg(plots.latencies([found])) and plots.svg(plots.throughput([found]))
    assert sent.name == "caf\\udce9 $5_{ to $10"


def test_the_gpu_is_named_of_what_has_no_plan_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As trees, which Triton's FIL backend runs."""
    version = SimpleNamespace(workspace=Workspace(tmp_path))
    monkeypatch.setattr(machine, "find_served_version", lambda: version)
    monkeypatch.setattr(gpu, "GpuStack", lambda settings: SimpleNamespace(description="2 x L4"))
    server = State("gpu", "", {})
    assert machine.machine(server)["GPU"] == "2 x L4"
    files.write(version.workspace.plan / "manifest.json", '{"gpu": {"name": "NVIDIA T4"}}')
    assert machine.machine(server)["GPU"] == "NVIDIA T4"


def test_a_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no picture"):
        photos.read_or_draw(str(tmp_path))


WITHOUT_LIBB64 = """
import runpy
from scripts.measuring import perf_analyzer
perf_analyzer.LIBB64 = "libnone.so"
runpy.run_module("scripts.commands", run_name="__main__")
"""


@pytest.mark.parametrize("command", ["measure.bench", "measure.tune"])
def test_what_measuring_needs_is_missed_before_anything_takes_its_time(
    tmp_path: Path, command: str
) -> None:
    project = Project.copy(tmp_path, FLAVOUR="local")
    refused = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBB64, command],
        cwd=project.path,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1 and not (project.path / "build").exists()
    (line,) = refused.stderr.splitlines()
    assert re.search(r"needs libnone\.so.*libb64", line)
    perf_analyzer.require("gpu")  # NVIDIA's image has it


def test_each_server_has_its_share_of_what_was_asked() -> None:
    """Of all rounds and measurements over one protocol."""

    def answered(protocol: str, **counted: int) -> Measurement:
        asked = Configuration(ENSEMBLE, SMALL, protocol, batch=1, concurrency=4)
        return Measurement(asked, (Sample(answered=counted), Sample(answered=counted)))

    found = count_shares(
        [answered("grpc", b=10, a=5), answered("grpc", a=15), answered("http", a=1)]
    )
    assert found == {"grpc": {"a": 40, "b": 20}, "http": {"a": 2}}
    assert share_rows(found)[0] == ("grpc", "a", 40, 2 / 3)
    assert count_shares([measured(20.0)]) == {}, "one server has all of them"
