"""The results as tables and bars in a terminal."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from scripts.base import tables
from scripts.base.tables import Bar, Cell, Row
from scripts.measuring.confidence import Estimate
from scripts.measuring.measurement import (
    PERCENTILES,
    Measurement,
    Shares,
    compare_with,
    name_compared,
    share_rows,
)
from scripts.measuring.results import Comparison
from scripts.measuring.server_side import Waterfall
from scripts.measuring.workload import NETWORK

# Of the processor time, of a process that is shown by itself.
LEAST_SHARE = 0.05


def show_figures(measurements: list[Measurement]) -> None:
    beside = "of net" if name_compared(measurements) == NETWORK else "of large"
    latencies = (f"{name} ms" for name in PERCENTILES)
    head = ("at a time", "pictures/s", "±", *latencies, "cpu ms", beside, "ms")
    tables.show("r" * len(head), head, _figures(measurements))


def _figures(measurements: list[Measurement]) -> Iterator[Row]:
    before = ""
    for one in measurements:
        asked = one.configuration
        group = f"{asked.target.label}, {asked.inputs.name}, {asked.protocol}"
        if group != before:
            yield (before := group)
        each = f"{asked.concurrency} of {asked.batch}" if asked.batch > 1 else asked.concurrency
        yield [str(each), *_cells(one, measurements)]


def _cells(one: Measurement, measurements: list[Measurement]) -> list[Cell]:
    if one.failure:
        return [Text("failed", "yellow")]
    other = compare_with(one, measurements)
    spent = sum(one.cpu_ms.values())
    share = (
        f"{other.share.median:.0%} ±{50 * (other.share.high - other.share.low):.0f}"
        if other
        else ""
    )
    return [
        Text(f"{one.throughput.median:.1f}", "" if one.stable else "yellow"),
        f"{one.throughput.share / 2:.0%}",
        *(f"{getattr(one, name).median:.1f}" for name in PERCENTILES),
        f"{spent:.1f}" if spent else "",
        share,
        f"{other.added:+.1f}" if other else "",
    ]


def show_waterfalls(shown: Sequence[Measurement]) -> None:
    """Each bar begins where the one above it ended, following the request."""
    head = ("where the time goes", "queue", "input", "compute", "output", "ms", "batch", "")
    tables.show("lrrrrrrl", head, _waterfalls(shown))


def _waterfalls(shown: Sequence[Measurement]) -> Iterator[Row]:
    for one in shown:
        flow = one.waterfall
        if one.stable and not flow:
            continue
        asked = one.configuration
        yield f"{asked.target.label}, {asked.inputs.name}, {asked.concurrency} at a time"
        if not flow or not one.stable:
            yield [Text("unstable", "yellow")]
            continue
        at = 0.0
        for cells, length in _steps(flow):
            yield [*cells, Bar(at / flow.client, (at + length) / flow.client)]
            at += length
        yield ["together", "", "", "", "", f"{flow.client:.1f}"]


def _steps(flow: Waterfall) -> Iterator[tuple[list[str], float]]:
    yield ["wire and client", "", "", "", "", f"{flow.wire:.1f}", ""], flow.wire
    for step in flow.steps:
        parts = (step.queue, step.input, step.compute, step.output, step.total, step.batch)
        yield [step.name, *(f"{part:.1f}" for part in parts)], step.total
    yield ["from step to step", "", "", "", "", f"{flow.overhead:.1f}", ""], flow.overhead


def show_processor(shown: Sequence[Measurement]) -> None:
    tables.show("rl", ("cpu ms", "a picture's processor time"), map(_processor, shown))


def _processor(one: Measurement) -> tuple[str, str]:
    asked, spent = one.configuration, one.cpu_ms
    whole = sum(spent.values())
    large = {name: ms for name, ms in spent.items() if ms >= LEAST_SHARE * whole}
    rest = whole - sum(large.values())
    parts = [
        *(f"{name} {ms:.1f}" for name, ms in large.items()),
        *([f"others {rest:.1f}"] if rest else []),
    ]
    name = f"{asked.target.label}, {asked.inputs.name}, {asked.concurrency} at a time"
    return f"{whole:.1f}", f"{name}: {', '.join(parts)}"


def show_who_answered(shares: Shares) -> None:
    tables.show(
        "llrrl",
        ("answered by", "", "requests", "share", ""),
        (
            (server, protocol, f"{count:,}", f"{share:.0%}", Bar(0, share))
            for protocol, server, count, share in share_rows(shares)
        ),
    )


def show_comparison(found: Comparison) -> None:
    """Bars as long as the throughput's ratio; the longest fills the room."""
    most = max((each.throughput.median for each in found.changes if each.throughput), default=1.0)
    shown: list[Row] = [f"against {found.when}"]
    for change in found.changes:
        rate = change.throughput
        shown.append(change.name)
        bar = Bar(0, rate.median / most) if rate else change.note
        shown.append([ratio(rate), ratio(change.p50), bar])
    tables.show("rrl", ("pictures/s", "p50", ""), shown)


def ratio(value: Estimate | None) -> str:
    return f"x {value}" if value else ""
