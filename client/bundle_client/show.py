"""Results as text: tables or lines for people, JSON for programs."""

import json
import os
import sys
import textwrap
import unicodedata
from dataclasses import asdict
from typing import TYPE_CHECKING

from .answers import Box, Detected, Label, Result, Segmented
from .errors import ClientError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

BAR_WIDTH = 20


def as_json(result: Result) -> str:
    """One line with `labels` and `ms`, or with `error`."""
    if result.error is not None:
        return json.dumps({"source": result.source, "error": error_fields(result.error)})
    found = [asdict(label) for label in result.labels]
    return json.dumps({"source": result.source, "labels": found, "ms": round(result.ms, 1)})


def error_fields(error: ClientError) -> dict[str, str]:
    return {"kind": type(error).__name__, "cause": error.cause, "remedy": error.remedy}


def as_table(result: Result, console: "Console") -> str:
    """The source, and below it a line per label, with a bar for its probability."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    lines = [Text.assemble((printable(result.source), "bold"), (f"  {result.ms:.0f} ms", "dim"))]
    width = max(cell_len(title(label)) for label in result.labels)
    # Not a rich.table.Table: on a narrow terminal it would drop numbers in favour of bars.
    room = min(BAR_WIDTH, max(0, console.width - width - 14))
    mark = "█" if console.encoding.startswith("utf") else "#"
    lines += [
        Text.assemble(
            "  " + set_cell_size(title(label), width),
            (f"  {percent(label)}", "cyan"),
            (f"  {mark * round(label.probability * room)}", "green"),
        )
        for label in result.labels
    ]
    return render_lines(console, *lines)


def boxes_as_json(found: Detected) -> str:
    """One line with `boxes` and `ms`."""
    boxes = [
        {"label": box.label, "score": box.score, "box": [round(side, 1) for side in corners(box)]}
        for box in found.boxes
    ]
    return json.dumps({"source": found.source, "boxes": boxes, "ms": round(found.ms, 1)})


def boxes_as_table(found: Detected, console: "Console") -> str:
    """The source, and below it a line per box: label, score, and its corners in pixels."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    lines = [Text.assemble((printable(found.source), "bold"), (f"  {found.ms:.0f} ms", "dim"))]
    width = max((cell_len(printable(box.label)) for box in found.boxes), default=0)
    lines += [
        Text.assemble(
            "  " + set_cell_size(printable(box.label), width),
            (f"  {box.score:7.2%}", "cyan"),
            ("  {:5.0f},{:<5.0f} to {:5.0f},{:<5.0f}".format(*corners(box)).rstrip(), "green"),
        )
        for box in found.boxes
    ]
    return render_lines(console, *lines, *(() if found.boxes else (Text("  nothing found"),)))


def areas_as_json(found: Segmented) -> str:
    """One line with `areas` and `ms`."""
    areas = [{**asdict(area), "share": round(area.share, 6)} for area in found.areas]
    return json.dumps({"source": found.source, "areas": areas, "ms": round(found.ms, 1)})


def areas_as_table(found: Segmented, console: "Console") -> str:
    """As labels, with shares in the place of probabilities."""
    labels = tuple(Label(area.index, area.label, area.share) for area in found.areas)
    return as_table(Result(found.source, labels, found.ms), console)


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


def title(label: Label) -> str:
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
