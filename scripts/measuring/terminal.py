"""The results as tables and bars in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from scripts.base import console
from scripts.measuring.compare import Comparison
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import Measurement, compare_with, name_compared
from scripts.measuring.shares import Shares, rows
from scripts.measuring.waterfall import Waterfall
from scripts.measuring.workload import NETWORK

# The width of a line that the figures leave for the bars.
FIGURES, LONGEST_BAR = 64, 40
# Of a process that is worth a word.
LEAST_MS = 0.05


def figures(measurements: list[Measurement]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("requests at a time", no_wrap=True)
    beside = "of net" if name_compared(measurements) == NETWORK else "of ensemble"
    for heading in ("", "pictures/s", "±", "p50 ms", "p95 ms", "p99 ms", "cpu ms", beside, "ms"):
        table.add_column(heading, justify="right")
    before = ""
    for one in measurements:
        asked = one.configuration
        group = f"{asked.target.label}, {asked.inputs.name}, {asked.protocol}"
        each = f"{asked.concurrency} of {asked.batch}" if asked.batch > 1 else asked.concurrency
        table.add_row("" if group == before else group, str(each), *_cells(one, measurements))
        before = group
    return table


def _cells(one: Measurement, measurements: list[Measurement]) -> list[str | Text]:
    if one.failure:
        return [Text("failed", "yellow")]
    other = compare_with(one, measurements)
    spent = sum(one.cpu_ms.values())
    return [
        Text(f"{one.throughput.median:.1f}", "" if one.stable else "yellow"),
        f"{one.throughput.share / 2:.0%}",
        *(f"{getattr(one, name).median:.1f}" for name in ("p50", "p95", "p99")),
        f"{spent:.1f}" if spent else "",
        f"{other.share.median:.0%} ±{50 * (other.share.high - other.share.low):.0f}"
        if other
        else "",
        f"{other.added:+.1f}" if other else "",
    ]


def waterfalls(shown: Sequence[Measurement]) -> Table:
    """Each bar begins where the one above it ended, following the request."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("where the time goes", no_wrap=True)
    for heading in ("queue", "input", "compute", "output", "ms", "batch"):
        table.add_column(heading, justify="right")
    table.add_column("")
    target = ""
    for one in shown:
        flow = one.waterfall
        if one.stable and not flow:
            continue
        asked = one.configuration
        if asked.target.label != target:
            table.add_row(Text(target := asked.target.label, "bold"))
        table.add_row(Text(f"{asked.inputs.name}, {asked.concurrency} at a time", "bold"))
        if not flow or not one.stable:
            table.add_row(Text("  unstable", "yellow"))
            continue
        at = 0.0
        for cells, length in _rows(flow):
            table.add_row(*cells, _bar(at, length, flow.client))
            at += length
        table.add_row("  together", "", "", "", "", f"{flow.client:.1f}")
    return table


def processor(shown: Sequence[Measurement]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("processor time", no_wrap=True)
    table.add_column("ms a picture", justify="right")
    table.add_column("by process")
    for one in shown:
        asked, spent = one.configuration, one.cpu_ms
        parts = ", ".join(f"{name} {ms:.1f}" for name, ms in spent.items() if ms >= LEAST_MS)
        name = f"{asked.target.label}, {asked.inputs.name}, {asked.concurrency} at a time"
        table.add_row(name, f"{sum(spent.values()):.1f}", parts)
    return table


def who_answered(shares: Shares) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("answered by", no_wrap=True)
    for heading in ("", "requests", "share"):
        table.add_column(heading, justify="right")
    for protocol, server, count, share in rows(shares):
        table.add_row(server, protocol, f"{count:,}", f"{share:.0%}")
    return table


def _rows(flow: Waterfall) -> Iterator[tuple[list[str], float]]:
    yield ["  wire and client", "", "", "", "", f"{flow.wire:.1f}", ""], flow.wire
    for step in flow.steps:
        parts = (step.queue, step.input, step.compute, step.output, step.total, step.batch)
        yield [f"  {step.name}", *(f"{part:.1f}" for part in parts)], step.total
    yield ["  from step to step", "", "", "", "", f"{flow.overhead:.1f}", ""], flow.overhead


def _bar(start: float, length: float, whole: float) -> Text:
    longest = min(LONGEST_BAR, console.out.width - FIGURES)
    before, upto = (round(longest * at / whole) for at in (start, start + length))
    return Text(" " * before + ("█" * (upto - before) or "▏"), style="blue")


def comparison(found: Comparison) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(f"against {found.when}")
    table.add_column("pictures/s", justify="right")
    table.add_column("p50", justify="right")
    for change in found.changes:
        table.add_row(change.name, ratio(change.throughput) or change.note, ratio(change.p50))
    return table


def ratio(value: Estimate | None) -> str:
    return f"x {value}" if value else ""
