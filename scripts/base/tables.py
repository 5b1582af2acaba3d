"""Tables that fit a terminal of 80 columns: no figure is cut off or wrapped, and the text in the
last column breaks between words. Of more columns than fit, a row is a list. In a pipe, each row is
one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.text import Text

from scripts.base import console
from scripts.base.text import fold, printable

LONGEST_BAR = 40
# Of the last column: with less room, its text stands below the row.
LEAST = 24
BELOW = 4


@dataclass(frozen=True)
class Bar:
    """From one share of the whole to another; in the last column."""

    start: float
    end: float

    def draw(self, room: int) -> Text:
        before, until = min(round(room * self.start), room - 1), round(room * self.end)
        return Text(" " * before + ("█" * (until - before) or "▏"), style="blue")


Cell = str | Text | Bar
# A heading goes across all columns.
Row = Sequence[Cell] | str


def show(columns: str, head: Sequence[str], rows: Iterable[Row]) -> None:
    """`columns` has l or r for each: the side at which its cells are aligned."""
    if console.Form.is_json:
        for row in rows:
            console.write_json(_name_cells(head, row))
        return
    for line in lay_out(columns, head, rows, console.out.width):
        console.out.print(line, soft_wrap=True)


def _name_cells(head: Sequence[str], row: Row) -> dict[str, object]:
    """By the names of the columns, where they have any, else by their numbers; figures as
    numbers."""
    if isinstance(row, str):
        return {"says": row}
    named: dict[str, object] = {}
    for number, (name, cell) in enumerate(zip_longest(head, row)):
        if not isinstance(cell, Bar | None):
            is_new = name and name not in named
            named[name if is_new else f"{name or ''} {number}".strip()] = _value(cell)
    return named


def _value(cell: Text | str) -> object:
    text = cell.plain if isinstance(cell, Text) else cell
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def lay_out(columns: str, head: Sequence[str], rows: Iterable[Row], width: int) -> Iterator[Text]:
    rows = [[Text(each, "bold") for each in head], *rows]
    *sizes, last = _sizes(columns, [row for row in rows if not isinstance(row, str)])
    gaps = next((gap for gap in (2, 1) if sum(sizes) + gap * len(sizes) + last <= width), 1)
    if sum(sizes) + len(sizes) + (last if columns[-1] == "r" else 0) > width:
        yield from _pairs(head, rows[1:], width)
        return
    for row in rows:
        if isinstance(row, str):
            yield Text(printable(row), "bold")
        elif any(row):
            yield from _lines(columns, row, [*sizes, last], gaps, width)


def _pairs(head: Sequence[str], rows: Iterable[Row], width: int) -> Iterator[Text]:
    """Of more columns than fit: each figure beside its name, as many in a line as there is room."""
    for row in rows:
        if isinstance(row, str):
            yield Text(printable(row), "bold")
            continue
        cells = (_text(cell).plain for cell in row if not isinstance(cell, Bar))
        named = zip_longest(head, cells, fillvalue="")
        line = ", ".join(f"{name} {cell}".strip() for name, cell in named if cell)
        yield from map(Text, fold(line, width, " " * BELOW).splitlines())


def _sizes(columns: str, rows: Sequence[Sequence[Cell]]) -> list[int]:
    """Of each column: the widest cell; of a last one with text, what it needs."""
    found = [0] * len(columns)
    for row in rows:
        for at, cell in enumerate(row):
            found[at] = max(found[at], 0 if isinstance(cell, Bar) else _text(cell).cell_len)
    if columns[-1] == "l":
        found[-1] = min(found[-1], LEAST)
    return found


def _lines(
    columns: str, row: Sequence[Cell], sizes: Sequence[int], gaps: int, width: int
) -> Iterator[Text]:
    line = Text()
    for at, (column, size, cell) in enumerate(zip(columns, sizes, row, strict=False)):
        line.append(" " * gaps if at else "")
        if at == len(columns) - 1 and column == "l":
            yield from _end(line, cell, width)
            return
        text = _text(cell)
        blank = Text(" " * (size - text.cell_len))
        line.append_text(blank + text if column == "r" else text + blank)
    line.rstrip()
    yield line


def _end(line: Text, cell: Cell, width: int) -> Iterator[Text]:
    """The row's last cell, which may go on in further lines, or below it."""
    room = width - line.cell_len
    if isinstance(cell, Bar):
        yield line + cell.draw(min(LONGEST_BAR, max(1, room)))
        return
    text = _text(cell)
    longest = max(map(len, text.plain.split()), default=0)
    beside = room >= max(min(LEAST, text.cell_len), longest)
    indent = line.cell_len if beside else BELOW
    others = fold(text.plain, width - indent).splitlines()
    if beside and others:
        line += Text(others.pop(0), text.style)
    line.rstrip()
    yield line
    for other in others:
        yield Text(" " * indent) + Text(other, text.style)


def _text(cell: Cell) -> Text:
    assert not isinstance(cell, Bar), "a bar is in the last column"
    return cell if isinstance(cell, Text) else Text(printable(cell))
