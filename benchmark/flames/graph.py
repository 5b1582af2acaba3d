"""A flame graph of perf's samples. They are folded: by process, library and system call, with the
function at the end. Who called whom is drawn from the bottom up, as wide as it takes time."""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

KERNEL = "[kernel.kallsyms]"
SYSTEM_CALL = re.compile(r"__(?:x64|arm64)_sys_(\w+)")
# Code that OpenVINO has made itself, by which it computes.
JUST_IN_TIME = re.compile(r"\[JIT\]|perf-\d+\.map$")
FRAME = re.compile(r"^\s+[0-9a-f]+ (?P<symbol>.*?)(?:\+0x[0-9a-f]+)? \((?P<file>.*)\)$")

Stack = tuple[str, ...]

WIDTH, ROW, CHARACTER = 1000, 18, 6.2
# Narrower boxes would show nothing.
LEAST = 2.0
COLOURS = ("#e4b04a", "#d98b4c", "#7fb2c9", "#9dc08b", "#c6a5cf", "#d8d3c4")
STYLE = (
    "<style>text{font:11px ui-monospace,monospace;fill:#222}"
    "rect{stroke:#fff;stroke-width:.6}</style>"
)


def fold(script: str, names: Mapping[int, str]) -> Counter[Stack]:
    """`script` is what `perf script --fields pid,ip,sym,dso` prints; `names` of processes. The
    outermost comes first."""
    found: Counter[Stack] = Counter()
    for sample in script.split("\n\n"):
        head, *lines = sample.strip("\n").splitlines() or [""]
        if head.strip().isdigit() and (name := names.get(int(head))):
            found[(name, *_shorten(list(_frames(lines)))[:5])] += 1
    return found


def _frames(lines: list[str]) -> Iterator[tuple[str, str]]:
    """File and function, the outermost first; what perf cannot name is left out."""
    for line in reversed(lines):
        frame = FRAME.match(line)
        if frame and frame["file"] not in ("[unknown]", "inlined"):
            yield frame["file"], frame["symbol"]


def _shorten(frames: list[tuple[str, str]]) -> Stack:
    """A box for each library in turn; of the kernel the system call; and the last function."""
    boxes: list[str] = []
    for file, symbol in frames:
        call = SYSTEM_CALL.fullmatch(symbol)
        box = call[1] if call else name_library(file)
        if box and (not boxes or boxes[-1] != box) and not (box == "kernel" and boxes[-1:]):
            boxes.append(box)
    if frames and frames[-1][1] != "[unknown]" and not JUST_IN_TIME.search(frames[-1][0]):
        boxes.append(frames[-1][1])
    return tuple(boxes)


def name_library(file: str) -> str:
    if JUST_IN_TIME.search(file):
        return "computing"
    if file == KERNEL:
        return "kernel"
    name = Path(file).name
    return re.sub(r"^lib|-[0-9a-f]{8}\b|\.cpython-\w+-\w+-\w+-\w+|\.so.*$|^_+", "", name)


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
