"""How right a model is: labelled data as people have it, and the figures."""

import base64
import io
import json
import os
from contextlib import nullcontext
from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bundle_client.sources import PICTURES
from scripts.base.errors import UserError
from scripts.evaluation.figures import Interval, Measured, compute_figures
from scripts.evaluation.labelled import (
    Item,
    Labelled,
    match_classes,
    read_files,
    read_rows,
    read_texts,
)
from scripts.evaluation.scores import (
    Answers,
    Paired,
    among_first,
    by_class,
    find_order,
    list_confused,
    list_losses,
    measure_calibration,
)
from scripts.evaluation.sequential import Drop
from scripts.evaluation.share import Share
from scripts.measuring.report import evaluation
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, evaluations
from scripts.rollout.labelled import judge_drop
from scripts.server import evaluating
from tests.project import Project

BIRDS = ("crow", "robin", "song thrush")


def write(path: Path, content: str = "a picture") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def classes_of(labelled: Labelled, classes: Any = BIRDS) -> list[int]:
    return [int(each) for each in match_classes(labelled, classes, "birds")]


def test_a_number_that_is_a_name_is_no_place(tmp_path: Path) -> None:
    found = read_texts(write(tmp_path / "val.csv", "text,label\na,1\nb,2\n"))
    assert classes_of(found) == [1, 2] and classes_of(found, ("1", "2", "3")) == [0, 1]
    padded = read_texts(write(tmp_path / "padded.csv", "text,label\na,0001\nb,0002\n"))
    assert classes_of(padded, ("0", "1", "2")) == [1, 2]
    for classes in (("2", "3", "4"), ("1.0", "2.0", "3.0")):
        with pytest.raises(UserError, match="does not know: 1"):
            classes_of(found, classes)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """As torchvision's ImageFolder reads it."""
    for name in ("crow/1.jpg", "crow/more/2.PNG", "robin/1.jpg", "song_thrush/1.webp"):
        write(tmp_path / "val" / name)
    for name in ("crow/notes.txt", "crow/.hidden.jpg", ".cache/1.jpg", "robin/.cache/1.jpg"):
        write(tmp_path / "val" / name)
    (tmp_path / "val" / "crow" / "crow").symlink_to(tmp_path / "val" / "crow")  # by ln -s, twice
    return tmp_path / "val"


def test_a_folder_for_each_class(folders: Path) -> None:
    found = read_files(folders, PICTURES.has)
    names = ["crow/1.jpg", "crow/more/2.PNG", "robin/1.jpg", "song_thrush/1.webp"]
    assert [each.name for each in found.items] == names and found.left_out == 1
    assert classes_of(found) == [0, 0, 1, 2]
    # A network without labels has them in the order of the folders.
    assert classes_of(found, [f"class {number}" for number in range(3)]) == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("val.csv", "file,label\ncrow/1.jpg,crow\nrobin/1.jpg,Robin\n"),
        ("val.csv", "crow/1.jpg,0\nrobin/1.jpg,1\n"),
        ("val.csv", 'id;Image;Species\n1;crow/1.jpg;"crow"\n2;robin/1.jpg;robin\n'),
        ("val.tsv", "\ufefflabel\tpath\ncrow\tcrow/1.jpg\nrobin\trobin/1.jpg\n"),
        (
            "val.jsonl",
            '{"file": "crow/1.jpg", "label": "crow"}\n\n{"file": "robin/1.jpg", "label": 1}\n',
        ),
    ],
)
def test_a_list_of_files_and_labels(folders: Path, name: str, content: str) -> None:
    found = read_files(write(folders / name, content), PICTURES.has)
    assert classes_of(found) == [0, 1]
    assert [Path(each.source).is_file() for each in found.items] == [True, True]


def test_a_folder_with_a_list_in_it(tmp_path: Path) -> None:
    write(tmp_path / "metadata.csv", "file_name,label\n1.jpg,robin\n")
    write(tmp_path / "1.jpg")
    assert classes_of(read_files(tmp_path, PICTURES.has)) == [1]


def test_texts_and_their_labels(tmp_path: Path) -> None:
    lines = 'text\tlabel\nWhat a day\\, and "so" on!\tgood\nNever again.\tbad\n'
    quoted = lines.replace('"so"', "so")
    found = read_texts(write(tmp_path / "val.tsv", quoted))
    assert classes_of(found, ("bad", "good")) == [1, 0]
    assert found.items[1] == Item("row 2", "bad", "Never again.")


def test_what_ends_an_evaluation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.server.ask.server_of", lambda _: None)
    monkeypatch.setattr("scripts.server.ask.uncounted_client", lambda *_: nullcontext())
    server: Any = SimpleNamespace(http=None)

    def refuse(*_: object) -> None:
        raise UserError("flowers does not answer: HTTP 400: a number is missing", "see make logs")

    with pytest.raises(UserError, match="line 7: flowers does not answer"):
        list(evaluating.ask_each(server, "flowers", [Item("line 7", "rose", "[NaN]")], refuse))


def test_commas_separate_nothing_in_a_tsv(tmp_path: Path) -> None:
    found = read_texts(write(tmp_path / "val.tsv", "Well, well, well\tgood\nNo, no\tbad\n"))
    assert found.items[0] == Item("row 1", "good", "Well, well, well")


def test_a_quote_that_does_not_end_takes_in_no_other_line(tmp_path: Path) -> None:
    content = 'text\tlabel\n"Not a good day, he said.\tbad\nA good one.\tgood\nSo I "think"\tgood\n'
    found = read_texts(write(tmp_path / "val.tsv", content))
    assert [item.label for item in found.items] == ["bad", "good", "good"]
    assert found.items[0].source == '"Not a good day, he said.'
    quoted = 'text\tlabel\n"A day\nof ""two""\tlines"\tgood\n'
    found = read_texts(write(tmp_path / "quoted.tsv", quoted))
    assert found.items == [Item("row 1", "good", 'A day\nof "two"\tlines')]


def test_a_slash_is_none_in_the_name_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "church_outdoor" / "1.jpg")
    found = read_files(tmp_path, PICTURES.has)
    assert classes_of(found, ("church/indoor", "church/outdoor")) == [1]


def test_texts_of_several_lines(tmp_path: Path) -> None:
    text = "What a day,\nand so on!\u2028Never\x85 again."
    quoted = write(tmp_path / "val.csv", f'\ntext,label\n"{text}",good\n')
    rows = write(tmp_path / "val.jsonl", json.dumps({"text": text, "label": "good"}) + "\n")
    plain = rows.with_name("plain.jsonl")
    plain.write_text(json.dumps({"text": text, "label": "good"}, ensure_ascii=False))
    for path in (quoted, rows, plain):
        assert read_texts(path).items == [Item("row 1", "good", text)]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "names nothing"),
        ("file,label\n", "names nothing"),
        ("a,b,c\n1,2,3\n", r"no columns with what is asked and its label \(a, b, c\)"),
        ("crow/1.jpg,crow\ncrow/1.jpg\n", "row 2, has 1 columns and not 2"),
        ("crow/1.jpg,crow\nmissing.jpg,crow\n", "1 file of val.csv is not there: missing.jpg"),
        ("crow/1.jpg,crow\n~missing.jpg,crow\n", "1 file of val.csv is not there: ~missing.jpg"),
    ],
)
def test_a_list_that_cannot_be_read(folders: Path, content: str, cause: str) -> None:
    with pytest.raises(UserError, match=cause):
        read_files(write(folders / "val.csv", content), PICTURES.has)


def test_lines_that_are_no_json(tmp_path: Path) -> None:
    for content in ("{", "[1]", "\xff"):
        path = tmp_path / "val.jsonl"
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(UserError, match="cannot read"):
            read_rows(path)


def test_empty_folders_of_classes_are_named(folders: Path) -> None:
    for name in ("wren", "dove"):
        write(folders / name / "readme.txt")
    with pytest.raises(UserError, match=r"2 class folders of .* are empty: dove, wren"):
        read_files(folders, PICTURES.has)


def test_unknown_classes_are_named_and_counted(folders: Path) -> None:
    for name in ("wren/1.jpg", "wren/2.jpg", "dove/1.jpg"):
        write(folders / name)
    known = r"EVAL has 2 classes that birds does not know: wren \(2\), dove \(1\)"
    with pytest.raises(UserError, match=known) as refused:
        classes_of(read_files(folders, PICTURES.has))
    assert "crow, robin, song thrush" in refused.value.remedy


def test_a_name_that_two_classes_have_says_nothing() -> None:
    """Two of ImageNet's are called crane."""
    classes = ("crane", "mug", "crane")
    with pytest.raises(UserError, match="birds calls 2 of its classes") as refused:
        classes_of(Labelled([Item("1", "crane", "")]), classes)
    assert refused.value.remedy == "write the number of one instead: 0, 2"
    assert classes_of(Labelled([Item("1", "2", ""), Item("2", "mug", "")]), classes) == [2, 1]


@pytest.mark.parametrize("where", ["nowhere", "empty"])
def test_there_must_be_data(tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no labelled data|no folders of classes"):
        read_files(tmp_path / where, PICTURES.has)


# Figures.


def answers(truth: Any, first: Any, confidence: Any = None, classes: Any = BIRDS) -> Answers:
    likeliest = np.array(first, np.int64).reshape(len(truth), -1)
    sure = np.full(len(truth), 0.9) if confidence is None else np.asarray(confidence, float)
    return Answers(classes, np.array(truth, np.int64), likeliest, sure)


def test_wilsons_interval() -> None:
    """As R's prop.test(correct=FALSE) gives it."""
    for (count, of), ends in {
        (8, 10): (0.4901625, 0.9433178),
        (0, 20): (0, 0.1611252),
        (50, 50): (0.9286524, 1),
    }.items():
        share = Share(count, of)
        assert isclose(share.low, ends[0], abs_tol=1e-6)
        assert isclose(share.high, ends[1], abs_tol=1e-6)
    assert str(Share(8, 10)) == "80.0% (49.0 to 94.3)"
    assert (Share(0, 0).low, Share(0, 0).high) == (0, 1)


def test_how_often_the_truth_is_among_the_likeliest() -> None:
    given = answers([0, 1, 2, 2], [[0, 1], [0, 1], [2, 0], [-1, -1]])
    assert among_first(given, 1) == Share(2, 4)
    assert among_first(given, 5) == Share(3, 4)


def test_recall_and_precision_of_each_class() -> None:
    crow, robin, thrush = by_class(answers([0, 0, 0, 1], [0, 0, 1, 2]))
    assert (crow.recall, crow.precision) == (Share(2, 3), Share(2, 2))
    assert (robin.recall, robin.precision) == (Share(0, 1), Share(0, 1))
    assert (thrush.name, thrush.recall, thrush.precision) == (
        "song thrush",
        Share(0, 0),
        Share(0, 1),
    )


def test_the_most_confused_pairs_and_the_surest_of_each() -> None:
    given = answers([0, 0, 0, 1, 1], [1, 1, 0, 0, 1], [0.5, 0.8, 1, 0.7, 1])
    first, second = list_confused(given)
    assert (first.truth, first.called, first.count, first.of) == ("crow", "robin", 2, 3)
    assert first.examples == [1, 0] and second.count == 1


@pytest.mark.parametrize("scale", [1.0, 0.6])
def test_a_model_that_is_as_often_right_as_it_is_sure(scale: float) -> None:
    random = np.random.default_rng(0)
    sure = random.uniform(0.4, 1, 4000)
    right = random.random(4000) < sure * scale
    given = answers(np.zeros(4000), np.where(right, 0, 1), sure)
    found = measure_calibration(given)
    assert found.low <= found.error <= found.high
    assert sum(each.right.of for each in found.bins) == 4000
    assert found.error < 0.03 if scale == 1 else isclose(found.error, 0.28, abs_tol=0.03)


def test_four_times_as_many_items_halve_a_calibration_errors_interval() -> None:
    random, widths = np.random.default_rng(0), list[float]()
    for count in (20_000, 80_000):
        sure = random.uniform(0.4, 1, count)
        right = random.random(count) < 0.9 * sure
        found = measure_calibration(answers(np.zeros(count), np.where(right, 0, 1), sure))
        widths.append(found.high - found.low)
    assert isclose(widths[1], widths[0] / 2, rel_tol=0.1)


def test_no_error_is_larger_than_all() -> None:
    sure_and_wrong = answers(np.zeros(3), np.ones(3), np.array([0.9, 0.4, 0.95]))
    assert measure_calibration(sure_and_wrong).high <= 1


@pytest.mark.parametrize(
    ("order", "wrong"), [([1, 2, 0, 3], 0.2), ([1, 0, 2, 3], 0.1), ([3, 2, 1, 0], 0.3)]
)
def test_classes_in_another_order_than_their_labels_are_found(
    order: list[int], wrong: float
) -> None:
    random = np.random.default_rng(0)
    truth = np.arange(200) % 4
    called = np.array(order)[truth]
    off = random.random(200) < wrong
    called[off] = random.integers(0, 4, off.sum())
    found = find_order(answers(truth, called, classes="abcd"))
    assert found is not None and found.tolist() == order


@pytest.mark.parametrize("right", [0.0, 0.3, 0.6, 1.0])
def test_a_poor_model_has_its_classes_in_order(right: float) -> None:
    random = np.random.default_rng(1)
    truth = np.arange(200) % 4
    called = np.where(random.random(200) < right, truth, random.integers(0, 4, 200))
    assert find_order(answers(truth, called, classes="abcd")) is None
    assert find_order(answers(truth, np.zeros(200), classes="abcd")) is None


def test_an_order_of_classes_that_the_data_has_only_in_part() -> None:
    found = find_order(answers([0] * 30 + [1] * 30, [1] * 30 + [2] * 30, classes="abcd"))
    assert found is not None and sorted(found.tolist()) == [0, 1, 2, 3]
    assert found.tolist()[:2] == [1, 2] and found[3] == 3


def test_mcnemars_test() -> None:
    """As R's binom.test gives it for what only one of the two got right."""
    assert isclose(Paired(1, 8, 100).p, 0.0390625)
    assert Paired(0, 0, 10).p == 1 and Paired(5, 5, 10).p == 1
    assert isclose(Paired(700, 800, 9000).p, 0.0105, abs_tol=0.0005)


@pytest.mark.parametrize(
    ("first", "second", "of", "is_worse"),
    [
        (60, 10, 1000, True),
        (10, 60, 1000, False),
        (3, 3, 5000, False),
        (0, 0, 40, False),
        (15, 10, 1000, False),
        (12, 0, 1000, False),
    ],
)
def test_how_sure_it_is_that_a_second_model_is_worse(
    first: int, second: int, of: int, is_worse: bool
) -> None:
    found = Paired(first, second, of)
    assert (found.low > 0.01) == is_worse
    assert found.low <= found.drop <= found.high


def test_what_a_second_model_costs_in_points() -> None:
    assert str(Paired(30, 10, 1000)) == "-2.0 points (-3.3 to -0.7)"
    assert str(Paired(1, 0, 1)) == "-100.0 points (-100.0 to +73.4)"  # and no more than all


def test_the_classes_that_lost_are_named() -> None:
    truth = np.array([0, 0, 0, 1, 1, 2])
    first = np.array([1, 1, 1, 1, 0, 1], bool)
    second = np.array([1, 0, 0, 0, 1, 1], bool)
    assert list_losses(truth, first, second, BIRDS) == ["crow 3 -> 1 of 3"]


def test_what_is_not_there_is_refused_before_a_server_is_started(tmp_path: Path) -> None:
    refused = Project.copy(tmp_path, FLAVOUR="local").make("eval", "EVAL=val")
    assert refused.stderr.startswith("error: there is no labelled data at ") and not refused.stdout


def test_what_was_replaced_while_it_was_asked_gets_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a rollout at the same time."""
    birds = Pipeline("birds", Path("birds.yaml"))
    asked, other = (archive.Version(birds, number, "", {}, {}, {}) for number in (2, 3))
    monkeypatch.setattr(evaluating, "serving", lambda _: asked)
    evaluating.require_still_served(asked)
    monkeypatch.setattr(evaluating, "serving", lambda _: other)
    with pytest.raises(UserError, match=r"birds version 2 was replaced .* birds version 3 is live"):
        evaluating.require_still_served(asked)


def test_what_belongs_to_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "HERE", tmp_path / "versions")
    birds = Pipeline("birds", tmp_path / "birds.yaml")
    assert evaluations.find_data(birds) is None
    monkeypatch.setenv("EVAL", str(tmp_path / "val"))
    with pytest.raises(UserError, match="no labelled data at"):
        evaluations.require_given()
    (tmp_path / "val").mkdir()
    evaluations.require_given()
    evaluations.remember_given(birds)
    for given, found in {
        "": tmp_path / "val",
        "none": None,
        "other": Path("other").resolve(),
    }.items():
        monkeypatch.setenv("EVAL", given)
        assert evaluations.find_data(birds) == found
    monkeypatch.setenv("EVAL", "")
    (tmp_path / "val").rmdir()
    with pytest.raises(UserError, match="is gone"):
        evaluations.find_data(birds)
    (tmp_path / "versions" / "birds" / evaluations.NAME).write_text("{}")
    with pytest.raises(UserError, match="cannot be read"):
        evaluations.find_data(birds)


def test_the_page_and_the_tables_show_the_same(tmp_path: Path) -> None:
    Image.new("RGB", (300, 200), "red").save(tmp_path / "red.png")
    sources: list[Path | str] = [tmp_path / "red.png", tmp_path / "gone.png", "a <text>", "another"]
    items = [Item(f"{number}", "", source) for number, source in enumerate(sources)]
    given = answers([0, 0, 0, 1], [1, 1, 1, 1], [0.9, 0.8, 0.7, 0.6])
    about = {"title": "birds", "data": "val", "when": "now", "network": "n", "classes": 2}
    refused = {"broken.jpg": "not a picture"}
    first = np.array([0, 1, 1, 1])
    figures = compute_figures(given, np.full(4, 9.0), 2.0, refused, ("PyTorch", first))
    told = evaluation.warnings(figures, 3, "build/eval")
    evaluation.write(tmp_path, about, figures, given, items, told)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/jpeg") == 1 and "a &lt;text&gt;" in page
    assert "taken for <b>robin" in page and "broken.jpg" in page
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["right"]["count"] == 1 and results["original"]["same_answers"] == 3
    assert len((tmp_path / "answers.csv").read_text().splitlines()) == 5
    rows = {row[0]: row[1] for row in evaluation.figure_rows(figures)}
    assert rows == {
        "right": "25.0%",
        "calibration error": f"{figures.calibration.error:.3f}",
        "the original": "50.0%",
        "latency": "9 ms",
    }
    assert [row[-1] for row in evaluation.class_rows(figures)] == ["crow", "robin"]
    assert "same answer as the original to 3 of 4" in evaluation.describe_original(figures)
    assert len(told) == 2 and "1 could not be read" in told[0]


def test_figures_of_their_own_have_a_page_and_a_line(tmp_path: Path) -> None:
    figures = {"mAP": Interval(0.5, 0.4, 0.625), "mAP at overlap 0.5": Interval(0.75, 0.7, 0.8)}
    found = Measured(figures, {"<mug>": 0.25, "car": 0.75}, 12, {"broken.jpg": "not a picture"})
    about = {"title": "things", "data": "val.json", "when": "now", "network": "n"}
    evaluation.write_measured(tmp_path, about, found)
    page = (tmp_path / "report.html").read_text()
    assert "50.0 <small>%" in page and "40.0 to 62.5" in page
    assert page.index("&lt;mug&gt;") < page.index("car</td>") and "broken.jpg" in page
    assert json.loads((tmp_path / "results.json").read_text())["items"] == 12
    kept = {"figure": "mAP", "value": 0.5, "low": 0.4, "high": 0.625, "of": 12, "data": "val.json"}
    said = evaluations.describe(kept | {"when": "2026-11-26T12:00:00+00:00"})
    assert said.startswith("mAP 50.0% (40.0 to 62.5) on 12 of val.json")


def test_labels_in_another_order_are_written_in_that_of_the_answers(tmp_path: Path) -> None:
    truth = np.arange(60) % 3
    given = answers(truth, (truth + 1) % 3)
    figures = compute_figures(given, np.ones(60), 1.0, {}, None)
    assert figures.labels == ["song thrush", "crow", "robin"]
    (told,) = evaluation.warnings(figures, 0, "build/eval", " MODEL=birds")
    assert told.endswith("make publish MODEL=birds")
    assert "another order than LABELS" in told and "build/eval/labels.txt; copy it" in told


def test_a_row_of_json_that_lacks_its_label(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "good"}, {"text": "b"}]
    path = write(tmp_path / "val.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"val\.jsonl, row 2, has no label"):
        read_texts(path)


def test_names_of_files_that_are_no_utf8(tmp_path: Path) -> None:
    """As old archives unpack them."""
    name = os.fsdecode(b"caf\xe9.jpg")
    figures = compute_figures(answers([0], [1]), np.ones(1), 1.0, {name: "not a picture"}, None)
    about = {"title": "birds", "data": "val", "when": "now", "network": "n", "classes": 2}
    items = [Item(name, "crow", tmp_path / name)]
    evaluation.write(tmp_path, about, figures, answers([0], [1]), items, [])
    assert r"caf\udce9.jpg" in (tmp_path / "answers.csv").read_text()
    assert (tmp_path / "report.html").read_text().count(r"caf\udce9.jpg") == 2


def test_rows_of_json_are_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps({"a": 1.5, "b": None}) + "\n")
    assert read_rows(path) == [{"a": "1.5", "b": ""}]


@pytest.mark.parametrize(
    ("first", "second", "of", "said", "objects"),
    [
        (60, 10, 1000, "of val, and MAX_DROP=1 is the most; it lost crow 9 -> 4 of 9", True),
        (10, 60, 1000, "points better, with 99% certainty, after 9 of val", False),
        (3, 3, 5000, "at most 0.2 points worse, with 99% certainty", False),
        (3, 1, 100, "cannot tell whether it is within MAX_DROP=1 after 9 of val; about ", False),
    ],
)
def test_a_candidate_is_judged_by_labelled_data(
    first: int, second: int, of: int, said: str, objects: bool
) -> None:
    found = judge_drop(Drop(first, second, of), "9 of val", 1, ["crow 9 -> 4 of 9"])
    assert bool(found.objection) == objects
    assert said in (found.objection or found.what)


def test_pictures_are_shown_as_they_are_served(tmp_path: Path) -> None:
    """Pillow clips 16 bits to 255: what is grey would be white."""
    grey = tmp_path / "grey.png"
    Image.fromarray(np.full((40, 40), 30_000, np.uint16)).save(grey)
    shown = evaluation._thumbnail(Item("grey.png", "crow", grey), 0.5).image
    content = base64.b64decode(shown.partition(",")[2])
    with Image.open(io.BytesIO(content)) as small:
        assert abs(np.asarray(small).mean() - 30_000 / 257) < 2
