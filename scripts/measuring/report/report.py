"""The report: one self-contained page, the plots as PNG files, JSON and CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from scripts.measuring import results, shares
from scripts.measuring.compare import Comparison
from scripts.measuring.measurement import Measurement, compare_with, name_compared
from scripts.measuring.report import plots
from scripts.measuring.report.headlines import headlines, tell
from scripts.measuring.report.terminal import ratio
from scripts.measuring.workload import CASCADE, ENSEMBLE

TEMPLATE = Path(__file__).with_name("report.html")

# The concurrencies to draw waterfalls for: one request alone, and enough to queue.
WATERFALL_AT = (1, 4)


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
        told=tell(measurements),
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
