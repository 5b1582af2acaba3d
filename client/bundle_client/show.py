"""Results as text: tables or lines for people, JSON for programs."""

import json
import os
import sys
import textwrap
import unicodedata
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeAlias

from .answers import Area, Box, Detected, Label, Result, Segmented

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

BAR_WIDTH = 20


Found: TypeAlias = Result | Detected | Segmented


def as_json(found: Found) -> str:
    """One line with what was found and `ms`, or with `error`."""
    if isinstance(found, Detected):
        boxes = [
            {
                "label": box.label,
                "score": box.score,
                "box": [round(side, 1) for side in corners(box)],
            }
            for box in found.boxes
        ]
        what: dict[str, object] = {"boxes": boxes}
    elif isinstance(found, Segmented):
        what = {"areas": [{**asdict(each), "share": round(each.share, 6)} for each in found.areas]}
    elif found.error is None:
        what = {"labels": [asdict(label) for label in found.labels]}
    else:
        fault = found.error
        error = {"kind": type(fault).__name__, "cause": fault.cause, "remedy": fault.remedy}
        return json.dumps({"source": found.source, "error": error})
    return json.dumps({"source": found.source, **what, "ms": round(found.ms, 1)})


def as_table(found: Found, console: "Console") -> str:
    """The source, and below it a line per label or area, with a bar for its probability or share;
    or per box, with its corners in pixels."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    if isinstance(found, Detected):
        scores = [(printable(box.label), box.score) for box in found.boxes]
    elif isinstance(found, Segmented):
        scores = [(title(area), area.share) for area in found.areas]
    else:
        scores = [(title(label), label.probability) for label in found.labels]
    width = max((cell_len(name) for name, _ in scores), default=0)
    if isinstance(found, Detected):
        places = [
            "{:5.0f},{:<5.0f} to {:5.0f},{:<5.0f}".format(*corners(box)) for box in found.boxes
        ]
        ends = [place.rstrip() for place in places]
    else:
        # Not a rich.table.Table: on a narrow terminal it would drop numbers in favour of bars.
        room = min(BAR_WIDTH, max(0, console.width - width - 14))
        mark = "█" if console.encoding.startswith("utf") else "#"
        ends = [mark * round(score * room) for _, score in scores]
    lines = [
        Text.assemble(
            "  " + set_cell_size(name, width), (f"  {score:7.2%}", "cyan"), (f"  {end}", "green")
        )
        for (name, score), end in zip(scores, ends, strict=True)
    ]
    head = Text.assemble((printable(found.source), "bold"), (f"  {found.ms:.0f} ms", "dim"))
    return render_lines(console, head, *(lines or [Text("  nothing found")]))


def corners(box: Box) -> tuple[float, float, float, float]:
    return box.left, box.top, box.right, box.bottom


def as_line(result: Result, width: int, console: "Console") -> str:
    """The likeliest label in one line; the label comes last because it may have any length."""
    from rich.text import Text

    best = result.labels[0]
    return render_lines(
        console,
        Text.assemble(
            f"{printable(result.source):<{width}}  ",
            (percent(best), "cyan"),
            (f"  {result.ms:5.0f} ms  ", "dim"),
            (title(best), "bold"),
        ),
    )


def title(label: Label | Area) -> str:
    return printable(label.label) or f"class {label.index}"


def printable(text: str) -> str:
    """File names and server messages as one line. Control characters, which a terminal would
    obey, are escaped."""
    return "".join(
        each if each.isprintable() or unicodedata.category(each) == "Zs" else ascii(each)[1:-1]
        for each in text
    )


def percent(label: Label) -> str:
    return f"{label.probability:7.2%}"


def as_error(result: Result) -> str:
    """One line: the picture or the server, the cause and the remedy."""
    return printable(f"error: {result.error}")


def print_error(result: Result) -> None:
    """In a terminal, broken between words."""
    line = as_error(result)
    if sys.stderr.isatty():
        width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


def as_summary(answered: int, failed: int, left: int, seconds: float) -> str:
    """A summary of all pictures in one line."""
    rest = f", {left} left" if left else ""
    return f"{answered} answered, {failed} failed{rest}, {answered / seconds:.1f} pictures/s"


def render_lines(console: "Console", *lines: "Text") -> str:
    # Captured, not printed, so that only one place writes to stdout and handles a broken pipe.
    with console.capture() as captured:
        console.print(*lines, sep="\n", soft_wrap=True)
    return captured.get().rstrip("\n")
