"""The report: one page that needs nothing beside it, the plots as PNG files, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from scripts.measuring import plots, results
from scripts.measuring.compare import Comparison
from scripts.measuring.measurement import Measurement, against, held_against
from scripts.measuring.terminal import ratio
from scripts.measuring.workload import CASCADE, ENSEMBLE, NETWORK

TEMPLATE = Path(__file__).with_name("report.html")

# Where the waterfall is drawn: alone, and with company enough to queue.
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
        rows=[(one, against(one, measurements)) for one in measurements],
        beside=held_against(measurements),
        plots={name: plots.svg(figure) for name, figure in figures.items()},
        comparison=comparison,
        ratio=ratio,
    )
    (folder / "report.html").write_text(page)


def for_the_waterfall(measurements: Sequence[Measurement]) -> list[Measurement]:
    return [
        one
        for one in measurements
        if one.stable
        and one.configuration.target.label in (ENSEMBLE, CASCADE)
        and one.configuration.protocol == "grpc"
        and one.configuration.batch == 1
        and one.configuration.concurrency in WATERFALL_AT
    ]


def headlines(measurements: Sequence[Measurement]) -> list[Headline]:
    """The most that each kind of photo reached, and how soon one alone is answered."""
    shown = []
    singles = [m for m in measurements if m.stable and m.configuration.batch == 1]
    asked = dict.fromkeys((m.configuration.target.label, m.configuration.inputs) for m in singles)
    for target, inputs in asked:
        alike = [
            m
            for m in singles
            if (m.configuration.target.label, m.configuration.inputs) == (target, inputs)
        ]
        best = max(alike, key=lambda m: m.throughput.median)
        alone = [m.p50.median for m in alike if m.configuration.concurrency == 1]
        at = f"{best.configuration.concurrency} at a time"
        shown.append(
            Headline(
                NETWORK if target == NETWORK else f"{target}, {inputs.name}",
                f"{best.throughput.median:.1f}",
                "pictures/s",
                f"{at}; one alone is answered in {min(alone):.0f} ms" if alone else at,
            )
        )
    return shown
