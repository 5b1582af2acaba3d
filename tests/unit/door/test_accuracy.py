"""How often a version is right, by how sure it is of its answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bundle_door.watching.accuracy import LEAST, NAME, estimate, find_threshold
from bundle_door.watching.measures import text
from bundle_door.watching.observed import Observed
from bundle_door.watching.references import References
from scripts.evaluation.scores import Answers
from scripts.server.evaluating import describe_confidence

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


def test_what_was_not_labelled_has_no_estimate(observed: Observed, tmp_path: Path) -> None:
    for _ in range(LEAST):
        observed.drift.observe(0, 0.9, ("m", "2"))
    assert observed.accuracy.find(("m", "2")) == {}
    (tmp_path / NAME).write_text("[damaged")
    assert observed.accuracy.find(STEP) == {}


def test_what_eval_notes_is_what_the_door_reads() -> None:
    sure = np.array([0.99999, 0.8, 0.6, 0.2])
    answers = Answers(["a", "b"], np.array([0, 0, 1, 1]), np.zeros((4, 1), np.int64), sure)
    assert describe_confidence(answers) == {"threshold": 0.8, "right": 2, "of": 4}
