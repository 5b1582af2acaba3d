"""A flame graph of folded stacks: who called whom from the bottom up, as wide as it takes time."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmark.flames.stacks import Stack

WIDTH, ROW, CHARACTER = 1000, 18, 6.2
# Narrower boxes would show nothing.
LEAST = 2.0
COLOURS = ("#e4b04a", "#d98b4c", "#7fb2c9", "#9dc08b", "#c6a5cf", "#d8d3c4")
STYLE = (
    "<style>text{font:11px ui-monospace,monospace;fill:#222}"
    "rect{stroke:#fff;stroke-width:.6}</style>"
)


@dataclass(frozen=True)
class Box:
    stack: Stack
    left: float  # in samples
    count: int


def draw(stacks: Mapping[Stack, int], title: str, requests: int, seconds: float) -> str:
    """`seconds`: of processor time for a sample."""
    whole = sum(stacks.values())
    boxes = [box for box in lay_out(stacks) if box.count * WIDTH / whole >= LEAST]
    depth = max(len(box.stack) for box in boxes)
    height = (depth + 1) * ROW + 4
    roots = [box.stack[0] for box in boxes if len(box.stack) == 1]
    parts = [f'<text x="4" y="{ROW - 5}">{html.escape(title)}</text>']
    for box in boxes:
        left, width = box.left * WIDTH / whole, box.count * WIDTH / whole
        top = height - len(box.stack) * ROW - 2
        ms = 1000 * box.count * seconds / requests
        label = f"{box.stack[-1]} {ms:.2f} ms"
        colour = COLOURS[roots.index(box.stack[0]) % len(COLOURS)]
        shown = label if len(label) * CHARACTER < width else box.stack[-1]
        room = int((width - 6) / CHARACTER)
        text = shown if len(shown) <= room else f"{shown[: room - 1]}…" if room > 3 else ""
        parts.append(
            f'<g><title>{html.escape(label)}</title><rect x="{left:.1f}" y="{top}" '
            f'width="{width:.1f}" height="{ROW}" fill="{colour}"/>'
            + (
                f'<text x="{left + 3:.1f}" y="{top + 13}">{html.escape(text)}</text>'
                if text
                else ""
            )
            + "</g>"
        )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    background = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join([head, STYLE, background, *parts, "</svg>", ""])


def lay_out(stacks: Mapping[Stack, int], below: Stack = (), left: float = 0) -> Iterator[Box]:
    """The widest first, each with what lies upon it."""
    depth = len(below)
    children: Counter[str] = Counter()
    for stack, count in stacks.items():
        if len(stack) > depth:
            children[stack[depth]] += count
    for name, count in children.most_common():
        own = {s: n for s, n in stacks.items() if len(s) > depth and s[depth] == name}
        yield Box((*below, name), left, count)
        yield from lay_out(own, (*below, name), left)
        left += count
