"""Rows of numbers: read from CSV, and drawn for a comparison."""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError
from scripts.evaluation.labelled import LABELS, Item, Labelled, read_rows

# By what files of models are called.
MAKERS = {".json": "XGBoost", ".ubj": "XGBoost", ".txt": "LightGBM", ".skops": "scikit-learn"}
# Of what is served, as Triton's FIL backend calls them (its src/model.h).
INPUT, OUTPUT = "input__0", "output__0"
EMPTY = ("", "na", "nan", "null", "none")
Rows = NDArray[np.float32]


def read(path: Path, columns: Sequence[str], width: int) -> Rows:
    """`columns` are the model's, if it has names for them: then a header says which is which, and
    others are left out. An empty cell is NaN."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, line) for number, line in enumerate(csv.reader(file), 1) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise UserError(f"cannot read {path} ({fault})", "name a CSV file") from None
    places: Sequence[int] = range(width)
    cells = width
    header = [cell.strip() for cell in lines[0][1]] if lines else []
    if _is_header(header, columns):
        del lines[0]
        if columns:
            places, cells = _places(path, header, columns), len(header)
    if not lines:
        raise UserError(f"{path} has no rows", "give one row per line")
    return np.stack([_row(path, *line, places, cells) for line in lines])


def _is_header(cells: Sequence[str], columns: Sequence[str]) -> bool:
    """Columns of pandas are called by numbers, if nobody gives them names. Where the model knows no
    names, a word beside figures is a mistake in a row."""
    numbers = {cell.lower() for cell in cells if _is_number(cell)}
    has_words = not all(map(_is_number, cells))
    if columns:
        return has_words or {*columns} <= {*cells}
    return has_words and numbers <= {*EMPTY}


def _places(path: Path, header: Sequence[str], columns: Sequence[str]) -> list[int]:
    # Of several columns of one name, the first.
    places = {name: place for place, name in reversed([*enumerate(header)])}
    if missing := [name for name in columns if name not in places]:
        raise UserError(
            f"{path} has no column {missing[0]}, but {', '.join(header)}"[:300],
            f"the model's are, between commas: {', '.join(columns)}"[:300],
        )
    return [places[name] for name in columns]


def _row(path: Path, number: int, line: Sequence[str], places: Sequence[int], cells: int) -> Rows:
    if len(line) != cells:  # a comma too many would move all numbers that follow
        raise UserError(f"{path}, line {number}: {len(line)} cells", f"give {cells} in each line")
    try:
        with np.errstate(over="ignore"):  # infinity, which is refused
            found = np.array([_number(line[place]) for place in places], np.float32)
    except ValueError as fault:
        raise UserError(f"{path}, line {number}: {fault}", "give numbers alone") from None
    if np.isinf(found).any():
        raise UserError(
            f"{path}, line {number}: a number beyond float32", "give none beyond 3.4e38"
        )
    return found


def _number(cell: str) -> float:
    return math.nan if cell.strip().lower() in EMPTY else float(cell)


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def read_labelled(path: Path, columns: Sequence[str], width: int) -> Labelled:
    """Rows with a header, and the class of each in a column called target, label, class, … or in
    the only one that is not the model's."""
    if not path.is_file():
        raise UserError(f"there are no labelled rows at {path}", "name a CSV file: EVAL=")
    found = read_rows(path)
    header = [*(found[0] if found else ())]
    others = [name for name in header if name not in columns] if columns else header[-1:]
    named = [name for name in header if name.lower() in LABELS and name not in columns]
    if not (target := (named or others)[:1]) or (not named and len(others) > 1):
        raise UserError(
            f"{path.name} does not say which column has the classes", "call it target in its header"
        )
    known = columns or [name for name in header if name not in target]
    if len(known) != width:
        raise UserError(f"{path.name} has {len(known)} numbers in a row", f"give {width}")
    items = []
    for number, row in enumerate(found, 1 if path.suffix == ".jsonl" else 2):
        places = _places(path, [*row], known)  # lines of JSON may have an order each
        numbers = _row(path, number, [*row.values()], places, len(row))
        items.append(Item(f"line {number}", row.get(target[0], ""), json.dumps(numbers.tolist())))
    return Labelled(items)


def draw_rows(graph: Any, width: int, count: int) -> Rows:
    """Between the thresholds that trees have for a column, and beyond the outermost; where there
    are none, around what a scaler takes for the middle."""
    random = np.random.default_rng(0)
    middle, spread = _find_scales(graph, width)
    found = random.standard_normal((count, width)) * spread + middle
    for column, thresholds in _thresholds(graph).items():
        between = (thresholds[1:] + thresholds[:-1]) / 2
        beyond = max(1.0, float(np.abs(thresholds).max())) / 2
        choices = [thresholds[0] - beyond, *between, thresholds[-1] + beyond]
        found[:, column] = random.choice(choices, count)
    rows: Rows = found.astype(np.float32)
    return rows


def leave_some_out(rows: Rows) -> Rows:
    """Of every fourth row some numbers are missing."""
    found = rows.copy()
    found[::4][np.random.default_rng(0).random(found[::4].shape) < 0.3] = math.nan
    return found


def _find_scales(graph: Any, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    for node in graph.node:
        if node.op_type == "Scaler":
            given = {each.name: np.array(each.floats) for each in node.attribute}
            if len(given["scale"]) == len(given["offset"]) == width and given["scale"].all():
                return given["offset"], 1 / given["scale"]
    return np.zeros(width), np.ones(width)


def _thresholds(graph: Any) -> dict[int, NDArray[Any]]:
    """By column; those of columns that were scaled before are none of the caller's."""
    found: dict[int, set[float]] = {}
    for node in graph.node:
        if INPUT not in node.input or not node.op_type.startswith("TreeEnsemble"):
            continue
        given = {each.name: each for each in node.attribute}
        for column, value, mode in zip(
            given["nodes_featureids"].ints,
            given["nodes_values"].floats,
            given["nodes_modes"].strings,
            strict=True,
        ):
            if mode != b"LEAF" and math.isfinite(value):  # infinite: what is missing, or not
                found.setdefault(column, set()).add(value)
    return {column: np.array(sorted(values)) for column, values in found.items()}
