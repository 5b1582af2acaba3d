"""Answers kept in a file, by the command as users run it."""

import csv
import fcntl
import json
from pathlib import Path

import pytest

from tests.client.stand_in import StandIn
from tests.client.test_command_line import pictures, run

__all__ = ["pictures"]

LABEL = '{"index": 1, "label": "x", "probability": 0.5}'
ANSWER = f'{{"source": "a.jpg", "labels": [{LABEL}], "ms": 1}}'
HEAD = "source,ms,label,index,probability\n"


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return [*csv.DictReader(lines)]


def test_a_run_goes_on_where_one_was_killed(stand_in: StandIn, pictures: Path) -> None:
    out = pictures / "labels.csv"
    asked = "--url", stand_in.url, "--out", str(out), str(pictures)
    first = run(*asked)
    assert (first.returncode, first.stdout) == (1, b"")
    whole = out.read_text()
    assert [Path(row["source"]).stem for row in read_rows(out)] == [
        f"{n:02}" for n in range(20) if n != 7
    ]
    out.write_text(whole[: whole.index("11.jpg") + 3])  # within a line
    again = run(*asked)
    told = again.stderr.decode().splitlines()
    assert told[0] == f"10 of 20 are in {out} already"
    assert told[1] == f"error: {pictures}/07.jpg: not a picture; send one"
    assert told[2].startswith("9 answered, 1 failed, ")
    assert [row["source"] for row in read_rows(out)] == [
        row["source"] for row in csv.DictReader(whole.splitlines())
    ]


def test_what_comes_by_standard_input_is_new_each_time(stand_in: StandIn, tmp_path: Path) -> None:
    out = tmp_path / "labels.csv"
    for picture in (b"first", b"second"):
        assert run("--url", stand_in.url, "--out", str(out), "-", stdin=picture).returncode == 0
    assert [row["label"] for row in read_rows(out)] == ["first", "second"]


@pytest.mark.parametrize("top", [1, 2])
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_each_form_has_the_same_answers(
    form: str, top: int, stand_in: StandIn, pictures: Path
) -> None:
    if form == "parquet":  # which hardly anyone asks for
        parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("it.csv", f"it.{form}"):
        run("--url", stand_in.url, "--out", f"{pictures}/{name}", "--top", f"{top}", str(pictures))
    rows = read_rows(pictures / "it.csv")
    assert len(rows) == 19
    wanted = [(row["source"], row["label"], float(row["probability"])) for row in rows]
    if form == "parquet":
        table = parquet.read_table(pictures / "it.parquet").to_pylist()
        assert [(row["source"], row["label"], row["probability"]) for row in table] == wanted
        return
    answers = [json.loads(line) for line in (pictures / "it.jsonl").read_text().splitlines()]
    best = [(answer["source"], answer["labels"][0]) for answer in answers]
    assert [(name, each["label"], each["probability"]) for name, each in best] == wanted


@pytest.mark.parametrize(
    ("name", "written", "left"),
    [
        ("it.jsonl", ANSWER, []),  # and is asked about again
        ("it.jsonl", ANSWER[:20], []),
        ("it.jsonl", ANSWER + "\n" + ANSWER[:5], ["a.jpg"]),
        ("it.csv", HEAD[:20], []),
        ("it.csv", HEAD + 'a.jpg,1,x,1,1\n"b\nc', ["a.jpg"]),
    ],
)
def test_a_line_that_was_cut_off_goes(
    name: str, written: str, left: list[str], stand_in: StandIn, tmp_path: Path
) -> None:
    out = tmp_path / name
    out.write_text(written)
    asked = "--url", stand_in.url, "--out", str(out), "--top", "1", "-"
    assert run(*asked, stdin=b"mug").returncode == 0
    lines = out.read_text().splitlines()
    rows = read_rows(out) if out.suffix == ".csv" else map(json.loads, lines)
    assert [row["source"] for row in rows] == [*left, "-"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_name_that_the_file_has_to_quote(form: str, stand_in: StandIn, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet")
    odd = tmp_path / 'a "b", c\nd\re\udcff.jpg'
    odd.write_bytes(b"mug")
    asked = "--url", stand_in.url, "--out", str(tmp_path / f"labels.{form}"), str(odd)
    assert run(*asked).returncode == 0
    again = run(*asked)
    assert b"1 of 1 are in" in again.stderr and again.returncode == 0


def test_what_cannot_be_written_is_told_before_the_server_is_asked(
    stand_in: StandIn, pictures: Path
) -> None:
    other = pictures / "other.csv"
    other.write_text("date,price\n1,2")
    taken = pictures / "taken.csv"
    for name, told in (
        ("labels.txt", "does not say what kind of file; end the name in .csv, .jsonl or .parquet"),
        ("nowhere/labels.csv", "No such file or directory; give a file in a folder of yours"),
        ("other.csv", "has something else than answers with 5 labels each; give another name"),
        ("taken.csv", "another run writes"),
    ):
        with taken.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = run("--url", stand_in.url, "--out", str(pictures / name), str(pictures))
        (line,) = done.stderr.decode().splitlines()
        assert told in line and line.startswith("error: ") and done.returncode == 1
    assert other.read_text() == "date,price\n1,2"
    assert stand_in.most_at_once == 0


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("it.jsonl", ANSWER.replace("[", "[" + LABEL + ", ") + "\n"),  # of more labels
        ("it.jsonl", '{"url": "a.jpg"}'),
        ("it.csv", HEAD[3:]),
        ("it.csv", HEAD + "a\rb,1,x,1,1\n"),
    ],
)
def test_a_file_of_something_else_is_left_as_it_is(
    name: str, written: str, stand_in: StandIn, tmp_path: Path
) -> None:
    out = tmp_path / name
    out.write_text(written, newline="")
    done = run("--url", stand_in.url, "--out", str(out), "--top", "1", "-", stdin=b"mug")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert b"something else than answers with 1 labels each" in line
    assert out.read_bytes().decode() == written
