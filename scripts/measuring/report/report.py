"""The report: one self-contained page, the plots as PNG files, JSON and CSV."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from scripts.measuring import results
from scripts.measuring.confidence import spread
from scripts.measuring.measurement import (
    PERCENTILES,
    Measurement,
    compare_with,
    name_compared,
    share_rows,
)
from scripts.measuring.report import plots
from scripts.measuring.report.terminal import ratio
from scripts.measuring.results import Comparison
from scripts.measuring.workload import CASCADE, ENSEMBLE, NETWORK, TEXTBOOK

TEMPLATE = Path(__file__).with_name("report.html")

# The concurrencies to draw waterfalls for: one request alone, and enough to queue.
WATERFALL_AT = (1, 4)

Groups = Mapping[tuple[str, str], Mapping[int, Measurement]]

# What a step does, in a word.
WORK = (
    (re.compile("preprocess"), "decoding"),
    (re.compile("postprocess"), "reading the scores"),
    (re.compile("_(onnx|trt)$"), "the network"),
)


def write(
    folder: Path,
    found: dict[str, Any],
    measurements: list[Measurement],
    comparison: Comparison | None,
) -> None:
    figures = {
        "throughput": plots.throughput(measurements),
        "latency": plots.latencies(measurements),
        "waterfall": plots.waterfall(for_the_waterfall(measurements)),
    }
    for name, figure in figures.items():
        plots.png(figure, folder / f"{name}.png")
    (folder / "results.json").write_text(json.dumps(found, indent=2) + "\n")
    (folder / "results.csv").write_text(results.as_csv(found))
    page = render(
        TEMPLATE,
        found=found,
        headlines=headlines(measurements),
        told=tell(measurements),
        rows=[(one, compare_with(one, measurements)) for one in measurements],
        shares=share_rows(found.get("servers", {})),
        beside=name_compared(measurements),
        percentiles=PERCENTILES,
        plots={name: plots.svg(figure) for name, figure in figures.items()},
        comparison=comparison,
        ratio=ratio,
    )
    (folder / "report.html").write_text(page)


def render(template: Path, **values: Any) -> str:
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template.read_text()).render(values)


def for_the_waterfall(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [
        one
        for one in measurements
        if one.configuration.target.label in (ENSEMBLE, CASCADE)
        and one.configuration.protocol == "grpc"
        and one.configuration.batch == 1
        and one.configuration.concurrency in WATERFALL_AT
    ]


# What a run says at a glance: a figure for each kind of picture, and a sentence.


@dataclass(frozen=True)
class Headline:
    what: str
    value: str
    unit: str
    note: str


def headlines(measurements: Sequence[Measurement]) -> list[Headline]:
    """What each kind of photo reached, all at the same concurrency: otherwise one with unstable
    figures would seem slower."""
    groups = _group(measurements)
    at = _choose_concurrency([*groups.values()])
    return [
        _headline(NETWORK if target == NETWORK else f"{target}, {inputs}", group, at)
        for (target, inputs), group in groups.items()
    ]


def tell(measurements: Sequence[Measurement]) -> str:
    """What the headlines mean; empty where nothing certain can be compared."""
    return " ".join(f"{each}." for each in _sentences(measurements))


def _sentences(measurements: Sequence[Measurement]) -> Iterator[str]:
    groups = _group(measurements)
    at = _choose_concurrency([*groups.values()])
    alike = {of: group[at] for of, group in groups.items() if at in group and group[at].stable}
    ours = {inputs: one for (label, inputs), one in alike.items() if label in (ENSEMBLE, CASCADE)}
    if len(ours) > 1:
        slow, *_, fast = sorted(ours, key=lambda inputs: ours[inputs].throughput.median)
        times = ours[fast].throughput.median / ours[slow].throughput.median
        why = _explain(ours[slow], ours[fast])
        yield f"A picture of {slow} costs {times:.1f} times one of {fast}{why}"
    network = [one for (label, _), one in alike.items() if label == NETWORK]
    if ours and network:
        rate = network[0].throughput.median
        ratios = [rate / one.throughput.median for one in ours.values()]
        yield f"The network alone, given pixels, is {spread(ratios)} times as fast as the whole way"
    rival = {inputs: one for (label, inputs), one in alike.items() if label == TEXTBOOK}
    if both := ours.keys() & rival.keys():
        ratios = [ours[each].throughput.median / rival[each].throughput.median for each in both]
        yield f"The whole way is {spread(ratios)} times as fast as the textbook pipeline"


def _explain(slow: Measurement, fast: Measurement) -> str:
    """By the step that takes the most longer."""
    if not slow.waterfall or not fast.waterfall:
        return ""
    before = {step.name: step.compute for step in fast.waterfall.steps}
    longer = {step.name: step.compute - before.get(step.name, 0) for step in slow.waterfall.steps}
    if len(longer) < 2:
        return ""
    most = max(longer, key=longer.__getitem__)
    return f": {next((word for pattern, word in WORK if pattern.search(most)), most)}"


def _group(measurements: Sequence[Measurement]) -> Groups:
    """By target and kind of picture, and then by concurrency."""
    asked: dict[tuple[str, str], dict[int, Measurement]] = {}
    for one in sorted(measurements, key=lambda one: one.stable):  # of two alike, the stable one
        of = one.configuration
        if of.batch == 1 and of.protocol == "grpc":
            asked.setdefault((of.target.label, of.inputs.name), {})[of.concurrency] = one
    order = dict.fromkeys(
        (one.configuration.target.label, one.configuration.inputs.name) for one in measurements
    )
    return {each: asked[each] for each in order if each in asked}


def _choose_concurrency(groups: Sequence[Mapping[int, Measurement]]) -> int:
    """The concurrency at which most are stable; of those, the fastest for the first."""
    measured = Counter(at for group in groups for at in group)
    stable = Counter(at for group in groups for at, one in group.items() if one.stable)

    def reach(at: int) -> float:
        one = groups[0].get(at)
        return one.throughput.median if one and one.stable else 0.0

    return max(measured, key=lambda at: (stable[at], reach(at), measured[at], at), default=1)


def _headline(what: str, group: Mapping[int, Measurement], at: int) -> Headline:
    one, alone = group.get(at), group.get(1)
    note = f"{at} at a time"
    if one is None:
        return Headline(what, "not measured", "", note)
    if one.failure:
        return Headline(what, "failed", "", f"{note}: {one.failure}")
    if not one.stable:
        note += f", {one.throughput.low:.1f} to {one.throughput.high:.1f}"
    if alone and alone.stable:
        note += f"; one alone is answered in {alone.p50.median:.0f} ms"
    return Headline(what, f"{one.throughput.median:.1f}", "pictures/s", note)
