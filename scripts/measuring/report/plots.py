"""The results as plots, in the page's colours. Unstable measurements are faded."""

import io
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from scripts.evaluation.scores import Bin
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import Measurement
from scripts.measuring.server_side import Waterfall
from scripts.measuring.workload import NETWORK

STYLE = Path(__file__).with_suffix(".mplstyle")

# Lines differ in their marks and words, too, for readers who do not tell colours apart.
COLOURS = ("#0f766e", "#c2410c", "#7c3aed", "#be185d", "#a16207", "#0369a1")
NETWORK_COLOUR = "#566361"
PARTS = {"queue": COLOURS[4], "input": COLOURS[5], "compute": COLOURS[0], "output": COLOURS[2]}
OUTSIDE = "#8a9997"
INK, SOFT, LINE = "#16201f", "#566362", "#dfe5e4"
FADED = 0.4
PERCENT = PercentFormatter(1, decimals=0)
UNSTABLE: dict[str, Any] = {"marker": "x", "alpha": FADED, "linestyle": "none"}
# What is another colour on a dark screen, by the names that the report's style has for it.
VARIABLES = {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    LINE: "var(--line)",
    OUTSIDE: "var(--outside)",
    NETWORK_COLOUR: "var(--network)",
    "#ffffff": "var(--card)",
    **{colour: f"var(--line-{number})" for number, colour in enumerate(COLOURS)},
}


def svg(figure: Figure) -> str:
    """SVG to embed in a page, without the file header, in the page's own colours."""
    file = io.StringIO()
    with style.context(STYLE):
        figure.savefig(file, format="svg")
    drawn = file.getvalue()[file.getvalue().index("<svg") :]
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda of: VARIABLES.get(of[0], of[0]), drawn)


def png(figure: Figure, path: Path) -> None:
    with style.context(STYLE):
        figure.savefig(path)


def throughput(measurements: Sequence[Measurement]) -> Figure:
    """Pictures per second over latency: a line per target and input, a dot per concurrency."""
    shown = [one for one in measurements if one.configuration.batch == 1]
    colours = _colours(shown)
    with style.context(STYLE):
        if not shown:
            return _nothing()
        figure = Figure(figsize=(8, 4.6))
        axes = figure.subplots()
        for series, measured in _series(shown):
            name, inputs, protocol = series
            colour = colours[name, inputs]
            points = [one for one in measured if one.stable]
            xs = [one.p50.median for one in points]
            ys = [one.throughput.median for one in points]
            axes.errorbar(
                xs,
                ys,
                yerr=_errors(*(one.throughput for one in points)),
                color=colour,
                linestyle="--" if protocol == "http" else "-",
                marker="s" if protocol == "http" else "o",
                markerfacecolor="white" if protocol == "http" else colour,
                linewidth=1.8,
                markersize=6,
                elinewidth=1,
                label=f"{name}, {inputs}, {protocol}" + ("" if points else ": all unstable"),
            )
            for one in measured:
                if not one.stable:
                    _unstable_point(axes, one, colour)
                if one.requests:
                    axes.annotate(
                        str(one.configuration.concurrency),
                        (one.p50.median, one.throughput.median),
                        xytext=(5, 5 if protocol == "grpc" else -12),
                        textcoords="offset points",
                        color=colour,
                        alpha=1 if one.stable else UNSTABLE["alpha"],
                        fontsize=9,
                        fontweight="bold",
                    )
        if any(not one.stable and one.requests for one in shown):
            label = "unstable: where it lies with 95% certainty"
            axes.plot([], [], color=SOFT, label=label, **UNSTABLE)
        axes.set_xlabel("median latency, ms (left is better)")
        axes.set_ylabel("pictures per second (up is better)")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.margins(x=0.08, y=0.12)
        axes.set_title("Throughput over latency; the numbers are requests at a time", pad=12)
        marks, names = axes.get_legend_handles_labels()
        order = sorted(range(len(marks)), key=lambda at: isinstance(marks[at], Line2D))
        axes.legend(
            [marks[at] for at in order],  # stable measurements first
            [names[at] for at in order],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.14),
            ncols=2,
            fontsize=9,
        )
        return figure


def _unstable_point(axes: Axes, one: Measurement, colour: str) -> None:
    """The range where it may be; one without any answer appears only in the legend."""
    if not one.requests:
        label = f"{one.configuration.name}: {one.why_unstable}"
        axes.plot([], [], color=colour, label=label, **UNSTABLE)
        return
    x, y = one.p50, one.throughput
    axes.errorbar(
        x.median,
        y.median,
        xerr=_errors(x),
        yerr=_errors(y),
        color=colour,
        elinewidth=1,
        **UNSTABLE,
    )


def _errors(*found: Estimate) -> list[list[float]]:
    """How far each may be below, and above."""
    return [[each.median - each.low for each in found], [each.high - each.median for each in found]]


def latencies(shown: Sequence[Measurement]) -> Figure:
    """p50, p95 and p99 of each configuration on one line."""
    colours = _colours(shown)
    with style.context(STYLE):
        if not shown:
            return _nothing()
        figure = Figure(figsize=(8, 1.3 + 0.28 * len(shown)))
        axes = figure.subplots()
        for row, one in enumerate(shown):
            colour = colours[one.configuration.target.label, one.configuration.inputs.name]
            strength = 1.0 if one.stable else FADED
            values = [one.p50.median, one.p95.median, one.p99.median] if one.requests else [0.0]
            ends = [values[0], values[-1]]
            axes.plot(ends, [row, row], color=colour, linewidth=2, alpha=strength / 2)
            for value, marker in zip(values, "o|D", strict=False):
                size = 9 if marker == "|" else 6
                axes.plot(value, row, marker, color=colour, markersize=size, alpha=strength)
            words = [] if one.failure else ["  ".join(f"{value:.0f}" for value in values)]
            words += [] if one.stable else [f"unstable: {one.why_unstable}"]
            axes.annotate(
                "   ".join(words),
                (values[-1], row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK if one.stable else SOFT,
            )
        axes.set_yticks(range(len(shown)), [one.configuration.name for one in shown], fontsize=9)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.18)
        axes.set_xlim(left=0)
        axes.set_xlabel("latency, ms (left is better)")
        axes.set_title("Latency: 50 %, 95 % and 99 % of the requests were answered within", pad=26)
        for label, marker in (("p50", "o"), ("p95", "|"), ("p99", "D")):
            axes.plot([], [], marker, color=SOFT, label=label)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=9, borderpad=0.2)
        return figure


def waterfall(measurements: Sequence[Measurement]) -> Figure:
    """A panel per measurement: a request's way through the server, step by step."""
    panels = [one for one in measurements if one.waterfall or not one.stable]
    with style.context(STYLE):
        if not panels:
            return _nothing()
        rows = -(-len(panels) // 2)
        columns = 2 if len(panels) > 1 else 1
        figure = Figure(figsize=(11 if columns == 2 else 8, 0.5 + 2.3 * rows))
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, one in zip(grid.flat, panels, strict=False):
            asked = one.configuration
            axes.set_title(
                f"{asked.target.label}, {asked.inputs.name}, {asked.concurrency} at a time"
                + (f": {one.waterfall.client:.0f} ms" if one.waterfall and not one.failure else ""),
                fontsize=10,
            )
            if one.waterfall and not one.failure:
                _panel(axes, one.waterfall, 1.0 if one.stable else FADED)
            else:
                axes.set_axis_off()
            if not one.stable:
                words = f"unstable: {one.why_unstable}"
                # At the bottom left, where no bar lies: the last one ends with the request.
                axes.text(0.01, 0.05, words, color=SOFT, transform=axes.transAxes)
        handles = [Patch(color=c) for c in (*PARTS.values(), OUTSIDE)]
        names = [*PARTS, "outside the steps"]
        figure.legend(handles, names, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=5)
        figure.tight_layout(w_pad=2, h_pad=1.5)
        return figure


def _panel(axes: Axes, flow: Waterfall, strength: float) -> None:
    at = flow.wire
    axes.barh(0, flow.wire, color=OUTSIDE, height=0.62, alpha=strength)
    ends = [(flow.wire, f"{flow.wire:.1f}")]
    for row, step in enumerate(flow.steps, start=1):
        for part, colour in PARTS.items():
            length = getattr(step, part)
            axes.barh(row, length, left=at, color=colour, height=0.62, alpha=strength)
            at += length
        batch = f", batch {step.batch:.1f}" if step.batch >= 1.05 else ""
        ends.append((at, f"{step.total:.1f}{batch}"))
    last = len(flow.steps) + 1
    axes.barh(last, flow.overhead, left=at, color=OUTSIDE, height=0.62, alpha=strength)
    ends.append((at + flow.overhead, f"{flow.overhead:.1f}"))
    for row, (end, text) in enumerate(ends):
        axes.annotate(
            text, (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8.5
        )
    names = ["wire and client", *(step.name for step in flow.steps), "from step to step"]
    axes.set_yticks(range(last + 1), names, fontsize=9)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, flow.client * 1.3)
    axes.set_xlabel("ms", fontsize=9)


def reliability(bins: Sequence[Bin]) -> Figure:
    """How often answers of each confidence are right, and how many there are."""
    with style.context(STYLE):
        figure = Figure(figsize=(8, 5.2))
        upper, lower = figure.subplots(2, sharex=True, height_ratios=(4, 1))
        upper.plot([0, 1], [0, 1], color=OUTSIDE, linestyle="--", linewidth=1)
        xs, ys = [each.confidence for each in bins], [each.right.value for each in bins]
        off = [
            [y - each.right.low for y, each in zip(ys, bins, strict=True)],
            [each.right.high - y for y, each in zip(ys, bins, strict=True)],
        ]
        upper.errorbar(
            xs, ys, yerr=off, color=COLOURS[0], linewidth=0.8, alpha=0.5, elinewidth=1, capsize=3
        )
        most = max(each.right.of for each in bins)
        upper.scatter(xs, ys, [20 + 180 * each.right.of / most for each in bins], COLOURS[0])
        upper.set_ylim(0, 1.03)
        upper.set_ylabel("right")
        upper.set_title("Reliability: how often answers are right, by how sure they are", pad=12)
        for each in bins:
            width = each.high - each.low
            lower.bar(each.low + width / 2, each.right.of, 0.9 * width, color=COLOURS[0], alpha=0.6)
        lower.set_xlim(0, 1.01)
        lower.set_ylabel("answers")
        lower.set_xlabel("confidence of the likeliest class")
        for axes in (upper, lower):
            axes.xaxis.set_major_formatter(PERCENT)
        upper.yaxis.set_major_formatter(PERCENT)
        figure.align_ylabels()
        return figure


def _nothing() -> Figure:
    figure = Figure(figsize=(8, 1.2))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing was measured", ha="center", color=OUTSIDE)
    return figure


def _colours(shown: Sequence[Measurement]) -> dict[tuple[str, str], str]:
    asked = [(one.configuration.target.label, one.configuration.inputs.name) for one in shown]
    own = [pair for pair in dict.fromkeys(asked) if pair[0] != NETWORK]
    return {pair: NETWORK_COLOUR for pair in asked} | {
        pair: COLOURS[number % len(COLOURS)] for number, pair in enumerate(own)
    }


def _series(
    shown: Sequence[Measurement],
) -> list[tuple[tuple[str, str, str], list[Measurement]]]:
    def key(one: Measurement) -> tuple[str, str, str]:
        asked = one.configuration
        return asked.target.label, asked.inputs.name, asked.protocol

    return [(name, list(points)) for name, points in groupby(shown, key)]
