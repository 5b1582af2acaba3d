"""The pictures of the documents that need no server; `python -m tests.drawn_pictures` writes them:

comparison.svg    how many times as fast the bundle is: the table in docs/measuring/comparison.md
how_it_works.svg  from weights to an answer
"""

import html
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.project import ROOT

PICTURES = ROOT / "docs" / "pictures"
# In a picture of the page, its words.
WORDS = "Words"
# In the page's colours, on a light and on a dark screen.
STYLE = """<style>
text { font: 14px system-ui, sans-serif; fill: #16201f }
.soft { fill: #566361; font-size: 12.5px }
.bold { font-weight: 650 }
.mono { font-family: ui-monospace, monospace; font-size: 13px }
.end { text-anchor: end }
.middle { text-anchor: middle }
.bar { fill: #0f766e }
.even { fill: #8a9997 }
.range, .way { stroke: #16201f; stroke-width: 1.5; fill: none }
.one { stroke: #8a4b00; stroke-width: 1.5; stroke-dasharray: 4 3 }
.box { fill: #ffffff; stroke: #c9d3d1; stroke-width: 1.5 }
.main { fill: #d7ebe8; stroke: #0f766e; stroke-width: 1.5 }
.head { fill: #16201f }
@media (prefers-color-scheme: dark) {
  text { fill: #e6eeec }
  .soft { fill: #9db0ad }
  .bar { fill: #5eccc0 }
  .even { fill: #7d908d }
  .range, .way { stroke: #e6eeec }
  .one { stroke: #ffce85 }
  .box { fill: #171f1e; stroke: #3a4947 }
  .main { fill: #16302d; stroke: #5eccc0 }
  .head { fill: #e6eeec }
}
</style>"""

RATIO = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")


@dataclass(frozen=True)
class Ratio:
    """How many times as fast, and the range of what is 95% certain."""

    name: str
    median: float
    low: float
    high: float


def draw(width: int, height: int, title: str, parts: Iterator[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{html.escape(title)}</title>", STYLE, *parts, "</svg>", ""])


def write(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{html.escape(text)}</text>'


# The comparison

AT_A_TIME = "4 at a time"
LABELS, LONGEST, ROW = 110, 560, 26


def read_ratios() -> dict[str, list[Ratio]]:
    """By photo, from the first table, with four requests at a time."""
    text = (ROOT / "docs" / "measuring" / "comparison.md").read_text()
    table = text[text.index("| over HTTP | pictures/s") :].split("\n\n")[0].splitlines()
    _, _, *names = (cell.strip() for cell in table[0].strip("| ").split("|"))
    found, photo = {}, ""
    for line in table[2:]:
        asked, _, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
        photo = asked.split(", ")[0] if "," in asked else photo
        if asked.endswith(AT_A_TIME):
            ratios = [tuple(map(float, RATIO.findall(cell)[0])) for cell in cells]
            found[photo] = [Ratio(n, *r) for n, r in zip(names, ratios, strict=True)]
    return found


def draw_comparison() -> str:
    found = read_ratios()
    rows = sum(len(ratios) + 2 for ratios in found.values())
    return draw(
        760, 40 + ROW * rows, "How many times as fast the bundle is as others", _bars(found)
    )


def _bars(found: dict[str, list[Ratio]]) -> Iterator[str]:
    scale = LONGEST / max(each.high for ratios in found.values() for each in ratios)
    yield write(0, 16, "How many times as fast the bundle is, four requests at a time", "bold")
    y = 34.0
    for photo, ratios in found.items():
        y += ROW
        yield write(0, y - 8, f"photos of {photo}", "soft")
        top = y
        for each in ratios:
            kind = "bar" if each.low > 1 else "even"
            yield write(LABELS - 10, y + 16, each.name, "end")
            yield (
                f'<rect x="{LABELS}" y="{y + 4:.1f}" width="{scale * each.median:.1f}" height="16" '
                f'rx="3" class="{kind}"/>'
            )
            low, high = (LABELS + scale * value for value in (each.low, each.high))
            yield f'<path d="M{low:.1f},{y + 12:.1f}H{high:.1f}" class="range"/>'
            yield write(high + 10, y + 16, f"{each.median:.1f}")
            y += ROW
        one = LABELS + scale
        yield f'<path d="M{one:.1f},{top:.1f}V{y:.1f}" class="one"/>'
        yield write(one, y + 13, "as fast", "soft middle")
        y += ROW


# How it works


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "box"

    @property
    def height(self) -> float:
        return 34.0 + 18 * len(self.lines)

    def draw(self) -> Iterator[str]:
        yield (
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="9" '
            f'class="{self.kind}"/>'
        )
        middle = self.x + self.width / 2
        yield write(middle, self.y + 22, self.title, "bold middle")
        for number, line in enumerate(self.lines):
            yield write(middle, self.y + 41 + 18 * number, line, "soft middle")


WEIGHTS = Box(1, 10, 149, "weights", ("torchvision, a file,", "or drawn"))
ONNX = Box(225, 10, 150, "ONNX", ("uint8 in, scores out", "compared with PyTorch"))
ENGINE = Box(450, 10, 150, "engine", ("precision, or a plan", "compared again"))
LIVE = Box(675, 10, 164, "build/live", ("what Triton reads", "versions, history"))
PHOTO = Box(1, 160, 149, "photo.jpg", ("client, curl, browser",))
DOOR = Box(225, 160, 150, "the door", ("checks each request",), "main")
STEPS = (
    Box(470, 160, 350, "preprocessing: bytes → pixels", ("Pillow, or DALI on a GPU",)),
    Box(470, 220, 350, "network: pixels → scores", ("OpenVINO on a CPU, TensorRT on a GPU",)),
    Box(470, 280, 350, "postprocessing: scores → answer", ("all three are one model on a CPU",)),
)
KEEPER = Box(225, 270, 150, "the keeper", ("restarts what dies",))


def draw_how_it_works() -> str:
    return draw(850, 350, "From weights to an answer", _flow())


def _flow() -> Iterator[str]:
    yield '<marker id="tip" markerWidth="9" markerHeight="9" refX="8" refY="4" orient="auto">'
    yield '<path d="M0,0L8,4L0,8z" class="head"/></marker>'
    for box in (WEIGHTS, ONNX, ENGINE, LIVE, PHOTO, DOOR, KEEPER):
        yield from box.draw()
    yield '<rect x="450" y="125" width="390" height="215" rx="9" class="main"/>'
    yield write(645, 148, "Triton", "bold middle")
    for box in STEPS:
        yield from box.draw()
    for from_x, y, to_x, word in (
        (150, 45, 225, "export"),
        (375, 45, 450, "engine"),
        (600, 45, 675, "layout"),
        (150, 186, 225, "HTTP"),
        (375, 186, 450, "gRPC"),
    ):
        yield f'<path d="M{from_x + 3},{y}H{to_x - 3}" class="way" marker-end="url(#tip)"/>'
        yield write((from_x + to_x) / 2, y - 7, word, "soft middle")
    yield '<path d="M757,80V121" class="way" marker-end="url(#tip)"/>'
    yield '<path d="M300,270V216" class="way" marker-end="url(#tip)"/>'
    yield '<path d="M375,296H446" class="way" marker-end="url(#tip)"/>'


DRAWN = {"comparison.svg": draw_comparison, "how_it_works.svg": draw_how_it_works}


def main() -> int:
    for name, drawn in DRAWN.items():
        (PICTURES / name).write_text(drawn())
    return 0


if __name__ == "__main__":
    sys.exit(main())
