"""The report: one self-contained page, the plots as PNG files, JSON and CSV."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from scripts.measuring import plots, results, shares
from scripts.measuring.compare import Comparison
from scripts.measuring.measurement import Measurement, compare_with, name_compared
from scripts.measuring.terminal import ratio
from scripts.measuring.workload import CASCADE, ENSEMBLE, NETWORK

TEMPLATE = Path(__file__).with_name("report.html")

# The concurrencies to draw waterfalls for: one request alone, and enough to queue.
WATERFALL_AT = (1, 4)


@dataclass(frozen=True)
class Headline:
    what: str
    value: str
    unit: str
    note: str


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
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(TEMPLATE.read_text()).render(
        found=found,
        headlines=headlines(measurements),
        rows=[(one, compare_with(one, measurements)) for one in measurements],
        shares=shares.rows(found.get("servers", {})),
        beside=name_compared(measurements),
        plots={name: plots.svg(figure) for name, figure in figures.items()},
        comparison=comparison,
        ratio=ratio,
    )
    (folder / "report.html").write_text(page)


def for_the_waterfall(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [
        one
        for one in measurements
        if one.configuration.target.label in (ENSEMBLE, CASCADE)
        and one.configuration.protocol == "grpc"
        and one.configuration.batch == 1
        and one.configuration.concurrency in WATERFALL_AT
    ]


def headlines(measurements: Sequence[Measurement]) -> list[Headline]:
    """What each kind of photo reached, all at the same concurrency: otherwise one with unstable
    figures would seem slower."""
    asked: dict[tuple[str, str], dict[int, Measurement]] = {}
    for one in sorted(measurements, key=lambda one: one.stable):  # of two alike, the stable one
        of = one.configuration
        if of.batch == 1 and of.protocol == "grpc":
            asked.setdefault((of.target.label, of.inputs.name), {})[of.concurrency] = one
    order = dict.fromkeys(
        (one.configuration.target.label, one.configuration.inputs.name) for one in measurements
    )
    groups = {each: asked[each] for each in order if each in asked}
    at = _choose_concurrency([*groups.values()])
    return [
        _headline(NETWORK if target == NETWORK else f"{target}, {inputs}", group, at)
        for (target, inputs), group in groups.items()
    ]


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
