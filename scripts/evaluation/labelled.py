"""Labelled data as people have it: a folder with a folder for each class, or a list of files or
texts and their labels (.csv, .tsv, .jsonl)."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.base.errors import UserError
from scripts.base.paths import expand

LISTS = (".csv", ".tsv", ".jsonl")
# What people call these columns.
INPUTS = ("file", "file_name", "filename", "path", "filepath", "image", "image_path", "img", "name")
TEXTS = ("text", "sentence", "review", "content")
LABELS = ("label", "class", "target", "category", "labels", "species", "class_name")
FORMS = "a folder with a folder for each class, or a .csv, .tsv or .jsonl of files and labels"
# Of what a message names.
SHOWN = 5


@dataclass(frozen=True)
class Item:
    name: str
    label: str
    source: Path | str  # a file, or what is asked itself


@dataclass(frozen=True)
class Labelled:
    """`left_out` are files in class folders whose names are not of this kind."""

    items: Sequence[Item]
    left_out: int = 0


def read_files(path: Path, is_taken: Callable[[str], bool]) -> Labelled:
    """`is_taken`: whether a file of this name is of the kind that is asked about."""
    if not path.exists():
        raise UserError(f"there is no labelled data at {path}", f"name it: EVAL={FORMS}")
    if path.is_file():
        return Labelled(_files_in_list(path))
    if any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir()):
        return _in_folders(path, is_taken)
    lists = [each for each in sorted(path.iterdir()) if each.suffix in LISTS]
    if len(lists) == 1:
        return Labelled(_files_in_list(lists[0]))
    raise UserError(f"{path} has no folders of classes", f"name {FORMS}: EVAL=")


def _in_folders(path: Path, is_taken: Callable[[str], bool]) -> Labelled:
    items, empty, left_out = list[Item](), list[str](), 0
    for folder in sorted(each for each in path.iterdir() if each.is_dir()):
        if folder.name.startswith("."):
            continue
        files = sorted(_list_files(folder))
        taken = [file for file in files if is_taken(file.name)]
        items += [Item(str(file.relative_to(path)), folder.name, file) for file in taken]
        left_out += len(files) - len(taken)
        if not taken:
            empty.append(folder.name)
    if empty:
        raise UserError(
            f"{_count(len(empty), 'class folder')} of {path} {_are(len(empty))} empty: "
            f"{_some(empty)}",
            "put files of that class there, or remove the folder",
        )
    return Labelled(items, left_out)


def _list_files(folder: Path) -> Iterator[Path]:
    """Also behind links, one of which may lead back: of each folder once. Nothing hidden."""
    seen = set[str]()
    for where, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(where)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in names if not name.startswith("."))


def _files_in_list(path: Path) -> list[Item]:
    items = [
        Item(given, label, path.parent / expand(given)) for given, label in read_list(path, INPUTS)
    ]
    if missing := [each.name for each in items if not Path(each.source).is_file()]:
        raise UserError(
            f"{_count(len(missing), 'file')} of {path.name} {_are(len(missing))} not there: "
            f"{_some(missing)}",
            "file names are relative to the list's folder",
        )
    return items


def find_folder(items: Sequence[Item]) -> tuple[Path, list[str]]:
    """One that has all of these files, and their names in it."""
    paths = [str(Path(item.source).resolve()) for item in items]
    folder = Path(os.path.commonpath(paths))
    folder = folder if folder.is_dir() else folder.parent
    return folder, [os.path.relpath(path, folder) for path in paths]


def read_texts(path: Path) -> Labelled:
    """One text and its label in each line."""
    if not path.is_file():
        raise UserError(f"there are no labelled texts at {path}", "name a .tsv, .csv or .jsonl")
    rows = read_list(path, (*TEXTS, *INPUTS))
    return Labelled(
        [Item(f"row {number}", each[1], each[0]) for number, each in enumerate(rows, 1)]
    )


def read_list(path: Path, inputs: Sequence[str]) -> list[tuple[str, str]]:
    """What is asked about and its label, from the columns of these names; without a header, the
    first two columns."""
    rows = [each for each in read_rows(path) if any(each.values())]
    if not rows:
        raise UserError(f"{path} names nothing", f"give it a row with {inputs[0]} and {LABELS[0]}")
    header = {name.strip().lower(): name for name in rows[0]}
    asked = next((header[name] for name in inputs if name in header), None)
    label = next((header[name] for name in LABELS if name in header), None)
    if asked is None or label is None:
        raise UserError(
            f"{path.name} has no columns with what is asked and its label ({_some([*header])})",
            f"call them {inputs[0]} and {LABELS[0]}",
        )
    for number, row in enumerate(rows, 1):
        if lacking := {asked, label} - row.keys():
            raise UserError(
                f"{path.name}, row {number}, has no {lacking.pop()}", "give it one, or remove it"
            )
    return [(row[asked], row[label]) for row in rows]


def read_rows(path: Path) -> list[Mapping[str, str]]:
    """Each row by the names of its columns: of a list of two without a header, `file` and
    `label`."""
    try:
        text = path.read_text(encoding="utf-8-sig").lstrip("\n")
        if path.suffix == ".jsonl":
            return [_as_texts(json.loads(line)) for line in text.split("\n") if line.strip()]
        if path.suffix == ".tsv":
            lines, unquoted = _split(text, "\t"), _split(text, "\t", quoting=csv.QUOTE_NONE)
            # A quote that begins a text, and ends none, takes in the lines that follow.
            if len(unquoted) > len(lines) and len({*map(len, unquoted)}) == 1:
                lines = unquoted
        else:
            lines = _split(text, max(",;\t", key=text.partition("\n")[0].count))
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as fault:
        raise UserError(f"cannot read {path} ({fault})", f"name {', '.join(LISTS)}") from None
    known, first = {*INPUTS, *TEXTS, *LABELS}, 1
    if lines and len(lines[0]) == 2 and not known & {cell.strip().lower() for cell in lines[0]}:
        lines.insert(0, [INPUTS[0], LABELS[0]])
        first = 0  # which is none of the file's
    for number, line in enumerate(lines, first):
        if len(line) != len(lines[0]):
            raise UserError(
                f"{path.name}, row {number}, has {len(line)} columns and not {len(lines[0])}",
                "put quotes around what contains a separator",
            )
    header, *rest = ([*map(str.strip, line)] for line in lines or [[]])
    return [dict(zip(header, line, strict=True)) for line in rest]


def _split(text: str, separator: str, **how: Any) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text), delimiter=separator, **how)
    return [row for row in rows if row]


def _as_texts(row: Mapping[str, object]) -> dict[str, str]:
    return {str(name): "" if value is None else str(value) for name, value in row.items()}


def match_classes(labelled: Labelled, classes: Sequence[str], model: str) -> NDArray[np.int64]:
    """The number of each item's class: by its name, however that is written, or by its number."""
    found = _numbers({item.label for item in labelled.items}, classes)
    require_known(Counter(item.label for item in labelled.items), found, classes, model)
    return np.array([found[item.label] for item in labelled.items], np.int64)


def require_known(
    labels: Counter[str], known: Collection[str], classes: Sequence[str], model: str
) -> None:
    unknown = [each for each in labels.most_common() if each[0] not in known]
    if not unknown:
        return
    for label, _ in unknown:
        alike = [str(n) for n, each in enumerate(classes) if _simplify(each) == _simplify(label)]
        if len(alike) > 1:
            raise UserError(
                f"EVAL has the class {label}, as {model} calls {len(alike)} of its classes",
                f"write the number of one instead: {_some(alike)}",
            )
    raise UserError(
        f"EVAL has {_count(len(unknown), 'class', 'classes')} that {model} does not know: "
        f"{_some([f'{label} ({count})' for label, count in unknown])}",
        f"call them as its labels are called ({_some(classes)}), or remove them",
    )


def _numbers(labels: set[str], classes: Sequence[str]) -> dict[str, int]:
    unnamed = [f"class {number}" for number in range(len(labels))]
    if [*classes] == unnamed and not labels & {*classes}:
        # Nobody said what they are called; in this order folders of classes are trained.
        order = sorted(labels, key=lambda label: (not label.isdecimal(), label))
        if not all(label.isdecimal() for label in order):
            return {label: number for number, label in enumerate(order)}
    exact, alike = (_unambiguous(map(way, classes)) for way in (str, _simplify))
    found, are_names = {}, any(re.fullmatch(r"[-.\d]+", name) for name in classes)
    for label in labels:
        number = exact.get(label, alike.get(_simplify(label)))
        if number is None and label.isdecimal() and int(label) < len(classes) and not are_names:
            number = int(label)
        if number is not None:
            found[label] = number
    return found


def _unambiguous(names: Iterator[str]) -> dict[str, int]:
    """Two of ImageNet's classes are called crane."""
    listed = list(names)
    counts = Counter(listed)
    return {name: number for number, name in enumerate(listed) if counts[name] == 1}


def _simplify(name: str) -> str:
    """A folder cannot have the slash of a class in its name, and may have zeros before a number."""
    return re.sub(r"[\s_/-]+", " ", re.sub(r"^0+(?=\d)", "", name)).strip().casefold()


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
