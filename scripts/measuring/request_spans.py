"""Where the time of one request went, between client, wire, door and steps. Pure functions.

Client and door measure by clocks of their own. What the client waited beyond the door's total is
the wire; half of it is drawn before the door and half after it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLIENT, WIRE, DOOR, STEP = "client", "wire", "door", "step"
LONGEST_BAR = 40


@dataclass(frozen=True)
class Span:
    where: str
    name: str
    start: float  # ms
    ms: float

    @property
    def end(self) -> float:
        return self.start + self.ms


ENTRY = re.compile(r"([\w.-]+);dur=([\d.]+)(?:;start=([\d.]+))?")


def read_timings(header: str) -> dict[str, Any]:
    """What Server-Timing says: the total, and what of it was spent where; nothing if it is not the
    door's."""
    entries = [found.groups() for found in ENTRY.finditer(header)]
    totals = [float(ms) for name, ms, start in entries if name == "total" and start is None]
    found = [
        {"name": name, "start_ms": float(start), "ms": float(ms)}
        for name, ms, start in entries
        if start is not None
    ]
    return {"total_ms": totals[0], "spans": found} if totals and found else {}


def spans(before: Mapping[str, float], asked_ms: float, timings: Mapping[str, Any]) -> list[Span]:
    """What the client did before it asked, by name; how long it then waited; what the door says.
    One follows the other: together they are the total, but for steps at the same time."""
    found, at = [], 0.0
    for name, ms in before.items():
        found.append(Span(CLIENT, name, at, ms))
        at += ms
    wire = max(0.0, asked_ms - timings["total_ms"])
    found.append(Span(WIRE, "to the door", at, wire / 2))
    found += _in_the_door(timings, at + wire / 2)
    return [*found, Span(WIRE, "and back", at + asked_ms - wire / 2, wire / 2)]


def _in_the_door(timings: Mapping[str, Any], began: float) -> Iterator[Span]:
    until = 0.0
    for each in timings["spans"]:
        if each["start_ms"] > until:
            yield Span(DOOR, "waiting, hand-over", began + until, each["start_ms"] - until)
        received = each["name"] == "received"
        where, name = (DOOR, "receiving the request") if received else (STEP, each["name"])
        yield Span(where, name, began + each["start_ms"], each["ms"])
        until = max(until, each["start_ms"] + each["ms"])
    if timings["total_ms"] > until:
        yield Span(DOOR, "waiting, hand-over", began + until, timings["total_ms"] - until)


def draw_spans(found: Sequence[Span], columns: int) -> Iterator[str]:
    """As wide as a terminal of so many columns lets the bars be."""
    total = max(each.end for each in found)
    width = max(len(each.name) for each in found)
    room = min(LONGEST_BAR, max(1, columns - width - len("client" + 3 * "  " + "12345.6")))
    for each in found:
        begin = min(round(each.start / total * room), room - 1)
        end = max(begin + 1, round(each.end / total * room))
        bar = " " * begin + "█" * (end - begin)
        yield f"{each.where:<6}  {each.name:<{width}}  {each.ms:7.1f}  {bar}".rstrip()
    yield f"{'total':<6}  {'':<{width}}  {total:7.1f} ms"
