"""How often a version is right, by how sure it is of its answers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import numpy as np
import pytest

from bundle_door.watching.accuracy import (
    LEAST,
    LEAST_OF_A_CLASS,
    MOST_GONE,
    NAME,
    bound_classes,
    estimate,
    find_threshold,
)
from bundle_door.watching.drift import References
from bundle_door.watching.measures import text
from bundle_door.watching.observed import Observed
from bundle_serving.identity import identity
from scripts.evaluation.scores import Answers
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.server.evaluating import describe_confidence, note_confidence

STEP = ("m", "1")
METRIC = 'bundle_estimated_accuracy_ratio{model="m",version="1",what='


def test_as_many_are_surer_as_are_right() -> None:
    assert find_threshold([0.9, 0.5, 0.7, 0.1], 3) == 0.5
    assert find_threshold([0.9, 0.5], 0) == 1.0


def test_fewer_answers_bound_it_less() -> None:
    many, few = ([0.9] * 8 * times + [0.1] * 2 * times for times in (100, 10))
    share, most = estimate(many, 0.5, 1000)
    assert share == 0.8 and 0.82 < most < 0.86
    assert estimate(few, 0.5, 1000)[1] > most
    assert estimate([0.1] * 100, 0.5, 100)[0] == 0 and estimate([0.9], 0.5, 9) == (1.0, 1.0)


LABELLED = {
    **{"threshold": 0.5, "right": 950, "of": 1000},
    "classes": {"0": {"threshold": 0.5, "right": 480, "of": 500},
                "1": {"threshold": 0.5, "right": 470, "of": 500}},
}  # fmt: skip


def answer(number: int, right: int, wrong: int) -> list[tuple[int, float]]:
    return [(number, 0.9)] * right + [(number, 0.1)] * wrong


def test_what_is_called_a_class_has_bounds() -> None:
    found = bound_classes(answer(0, 480, 20) + answer(1, 470, 30), LABELLED)
    about, low, high = found[0]
    assert about == 0.96 and 0.86 < low < 0.9 and 0.98 < high <= 1 and found[1][1] < low
    worse = bound_classes(answer(0, 480, 20) + answer(1, 460, 40), LABELLED)
    assert worse[0][0] == about and worse[0][1] < low  # it may be this class that has lost


def test_of_a_class_nothing_is_told_where_too_little_is_known() -> None:
    few = LEAST_OF_A_CLASS - 1
    assert {*bound_classes(answer(0, few, 0) + answer(1, 900, 50), LABELLED)} == {1}
    too_wide = answer(0, LEAST_OF_A_CLASS - 10, 10) + answer(1, 910, 40)
    assert {*bound_classes(too_wide, LABELLED)} == {1}
    lost = answer(0, 480, 20) + answer(1, 430, 70)
    assert bound_classes(lost, LABELLED) == {}
    of_before = {name: LABELLED[name] for name in ("threshold", "right", "of")}
    assert bound_classes(answer(0, 950, 50), of_before) == {}


@pytest.fixture
def observed(tmp_path: Path) -> Observed:
    known = {"m/1": {"threshold": 0.5, "right": 850, "of": 1000}}
    (tmp_path / NAME).write_text(json.dumps(known))
    return Observed(References(None, tmp_path))


def test_an_estimate_is_told(observed: Observed) -> None:
    for number in range(LEAST - 1):
        observed.drift.observe(number % 2, 0.9, STEP)
    assert observed.accuracy.find(STEP) == {} and METRIC not in text([observed.accuracy])
    for _ in range(500):
        observed.drift.observe(0, 0.9, STEP)
        observed.drift.observe(1, 0.3, STEP)
    told = observed.accuracy.find(STEP)
    assert told["labelled"] == 0.85 and told["estimated"] == 0.5 and 0.5 < told["at most"] < 0.6
    assert f'{METRIC}"at most"}}' in text([observed.accuracy])
    (version,) = observed.tell_drift()
    assert version["accuracy"] == told


def test_classes_are_told_by_their_names(observed: Observed, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"m/1": LABELLED}))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "labels.txt").write_text("robin\nwren\n")
    for number, sure in answer(0, 480, 20) + answer(1, 470, 30):
        observed.drift.observe(number, sure, STEP)
    (version,) = observed.tell_drift()
    weakest, other = version["classes"]
    assert weakest["class"] == "wren" and other["class"] == "robin"
    assert weakest["at least"] < weakest["estimated"] == 0.94 < weakest["at most"]
    told = text([observed.accuracy_of_classes])
    assert f'version="1",class="1",what="at least"}} {weakest["at least"]}' in told
    (tmp_path / NAME).write_text(json.dumps({"m/1": {"threshold": 0.5, "right": 95, "of": 100}}))
    assert observed.accuracy.find_classes(STEP) == {}


def test_what_was_not_labelled_has_no_estimate(observed: Observed, tmp_path: Path) -> None:
    for _ in range(LEAST):
        observed.drift.observe(0, 0.9, ("m", "2"))
    assert observed.accuracy.find(("m", "2")) == {}
    (tmp_path / NAME).write_text("[damaged")
    assert observed.accuracy.find(STEP) == {}


def test_another_network_of_the_same_number_was_not_labelled(
    observed: Observed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model was removed, and another one is called so."""
    monkeypatch.setattr(live, "REPOSITORY", tmp_path)
    network = tmp_path / "m" / "1" / "model.onnx"
    network.parent.mkdir(parents=True)
    network.write_text("the first")
    labelled = Answers(["a"], np.zeros(9, np.int64), np.zeros((9, 1), np.int64), np.ones(9))
    note_confidence(cast(Version, SimpleNamespace(models={"m": 1})), labelled)
    for content in ("the first", "another"):
        network.write_text(content)
        for _ in range(LEAST):
            observed.drift.observe(0, 1.0, STEP, identity(network.parent))
        assert bool(observed.accuracy.find(STEP)) == (content == "the first")


def test_the_notes_of_a_year_are_bounded_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REPOSITORY", tmp_path)
    labelled = Answers(["a"], np.zeros(9, np.int64), np.zeros((9, 1), np.int64), np.ones(9))
    (tmp_path / "m" / "1").mkdir(parents=True)
    for number in range(1, MOST_GONE + 3):
        note_confidence(cast(Version, SimpleNamespace(models={"m": number})), labelled)
    noted = json.loads((tmp_path / NAME).read_text())
    assert len(noted) == MOST_GONE + 1 and {"m/1", "m/3"} <= noted.keys() and "m/2" not in noted
    reads = Mock(wraps=json.loads)
    monkeypatch.setattr(json, "loads", reads)
    observed = Observed(References(None, tmp_path))
    text(observed.families)
    observed.tell_drift()
    assert reads.call_count == 1


def test_what_eval_notes_is_what_the_door_reads() -> None:
    sure = np.array([0.99999, 0.8, 0.6, 0.2])
    answers = Answers(["a", "b"], np.array([0, 0, 1, 1]), np.zeros((4, 1), np.int64), sure)
    of_all = {"threshold": 0.8, "right": 2, "of": 4}
    assert describe_confidence(answers) == of_all | {"classes": {}}


def test_eval_notes_classes_that_are_called_often() -> None:
    first = np.repeat([1, 0, -1], (LEAST_OF_A_CLASS, LEAST_OF_A_CLASS - 1, LEAST_OF_A_CLASS))
    truth = np.where(np.arange(len(first)) < 10, 0, 1)
    answers = Answers(["a", "b"], truth, first[:, None], np.linspace(1, 0.5, len(first)))
    (found,) = describe_confidence(answers)["classes"].items()
    number, of_class = found
    assert number == "1" and of_class["right"] == 40 and of_class["of"] == LEAST_OF_A_CLASS
    surer = answers.confidence[:LEAST_OF_A_CLASS].round(4) >= of_class["threshold"]
    assert surer.sum() == 40
