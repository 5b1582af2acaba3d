"""Answers in a file, as they come: .csv, .jsonl or .parquet. What it has is not asked about again,
so a run goes on where an earlier one ended. Pictures that failed are not in it."""

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from .answers import Result
from .errors import ClientError, NotInstalled
from .show import as_json

CSV, LINES, PARQUET = ".csv", ".jsonl", ".parquet"
OF_A_LABEL = "label", "index", "probability"
BEGINS = '{"source": '  # a line of as_json
ROWS = 10_000


class AnswerFile:
    """Of a .parquet, the lines lie in a .jsonl beside it, from which it is written at the end."""

    def __init__(self, path: Path, file: TextIO, top: int) -> None:
        self.path, self.file, self.top = path, file, top
        self.known = self._take_up()

    def _take_up(self) -> set[str]:
        """The pictures that it has. A line that a killed run left unfinished goes."""
        text = self.file.read()
        end = text.rfind("\n") + 1
        while self._is_csv and text.count('"', 0, end) % 2:  # a line end within a name
            end = text.rfind("\n", 0, end - 1) + 1
        known = self._read(text, end)
        self.file.seek(len(text[:end].encode(errors="surrogateescape")))
        self.file.truncate()
        if self._is_csv and not end:
            self._write(self._head())
        return known

    def _read(self, text: str, end: int) -> set[str]:
        begins = self._head() if self._is_csv else BEGINS
        try:
            if (self._is_csv or not end) and not begins.startswith(text[: len(begins)]):
                raise ValueError
            if not self._is_csv:
                return {self._name_asked(line) for line in text[:end].splitlines()}
            return {row[0] for row in csv.reader(io.StringIO(text[len(begins) : end]))}
        except (ValueError, LookupError, TypeError, csv.Error):
            raise ClientError(
                f"{self.path} has something else than answers with {self.top} labels each",
                "give another name, or as many labels as before",
            ) from None

    def _name_asked(self, line: str) -> str:
        answer = json.loads(line)
        if len(answer["labels"]) > self.top:  # a .parquet would lose them
            raise ValueError
        return str(answer["source"])

    @property
    def _is_csv(self) -> bool:
        return self.path.suffix == CSV

    def _head(self) -> str:
        return format_row(list_columns(self.top))

    def add(self, result: Result) -> None:
        if not self._is_csv:
            return self._write(as_json(result) + "\n")
        labels = [getattr(label, name) for label in result.labels for name in OF_A_LABEL]
        empty = [""] * (len(OF_A_LABEL) * self.top - len(labels))
        self._write(format_row([result.source, round(result.ms, 1), *labels, *empty]))

    def _write(self, line: str) -> None:
        try:
            self.file.write(line)
            self.file.flush()
        except OSError as exc:
            raise ClientError(
                f"cannot write {self.path}: {exc.strerror}", "make room; then ask again to go on"
            ) from exc


@contextmanager
def keep_answers(path: Path, top: int) -> Iterator[AnswerFile]:
    """For one run at a time."""
    if path.suffix not in (CSV, LINES, PARQUET):
        raise ClientError(
            f"{path} does not say what kind of file",
            f"end the name in {CSV}, {LINES} or {PARQUET}",
        )
    lines = path
    if path.suffix == PARQUET:
        require_pyarrow()
        lines = path.with_name(path.name + LINES)
        if path.exists() and not lines.exists():
            raise ClientError(f"{path} is there already", "give another name, or remove it")
    try:
        file = lines.open("a+", encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as exc:
        raise ClientError(
            f"cannot write {lines}: {exc.strerror}", "give a file in a folder of yours"
        ) from exc
    with file:
        require_alone(file)
        file.seek(0)
        yield AnswerFile(path, file, top)
        if lines != path:
            try:
                write_parquet(lines, path, top)
            except OSError as exc:
                raise ClientError(
                    f"cannot write {path}: {exc.strerror or exc}", f"the answers are in {lines}"
                ) from exc


def list_columns(top: int) -> list[str]:
    """The likeliest label's first, under plain names."""
    numbers = ["", *(f"_{place}" for place in range(2, top + 1))]
    return ["source", "ms", *(f"{name}{place}" for place in numbers for name in OF_A_LABEL)]


def format_row(values: list[Any]) -> str:
    row = io.StringIO()
    csv.writer(row).writerow(values)  # with \r\n, so that it quotes both in a name
    return row.getvalue().removesuffix("\r\n") + "\n"


def require_alone(file: TextIO) -> None:
    try:
        import fcntl
    except ImportError:  # on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ClientError(
            f"another run writes {file.name}", "wait for it, or give another name"
        ) from None


def require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise NotInstalled(
            "pyarrow is not installed, which writes .parquet", "pip install pyarrow, or use .csv"
        ) from None


def write_parquet(lines: Path, path: Path, top: int) -> None:
    """The same columns as in a .csv."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    kinds = {"label": pyarrow.string(), "index": pyarrow.int32(), "probability": pyarrow.float32()}
    names = list_columns(top)
    schema = pyarrow.schema(
        [("source", pyarrow.string()), ("ms", pyarrow.float32())]
        + [(name, kinds[name.partition("_")[0]]) for name in names[2:]]
    )
    scratch = path.with_name(path.name + ".part")
    with lines.open(encoding="utf-8") as file, ParquetWriter(scratch, schema) as writer:
        while some := [*islice(file, ROWS)]:
            answers = map(json.loads, some)
            rows = [dict(zip(names, list_values(each), strict=False)) for each in answers]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    scratch.replace(path)


def list_values(answer: dict[str, Any]) -> Iterator[Any]:
    # A name that is not UTF-8 is one of the system's alone.
    yield from (answer["source"].encode(errors="backslashreplace").decode(), answer["ms"])
    for label in answer["labels"]:
        yield from (label[name] for name in OF_A_LABEL)
