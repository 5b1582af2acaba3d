"""The distance of a version's answers from its first ones."""

from __future__ import annotations

import pytest

from bundle_door.drift import ANSWERS, NAMED, stability_index
from bundle_door.measures import text
from bundle_door.observed import Observed

STEP = ("m", "1")


def answered(observed: Observed, classes: int, share: float) -> None:
    for number in range(ANSWERS):
        observed.drift.observe(number % classes, share, *STEP)


def test_the_same_shares_are_no_distance() -> None:
    assert stability_index({"a": 500, "b": 500}, {"a": 500, "b": 500}) == 0


def test_the_index_is_the_usual_one() -> None:
    # (0.8 - 0.5) ln(0.8 / 0.5) + (0.2 - 0.5) ln(0.2 / 0.5)
    found = stability_index({"a": 50_000, "b": 50_000}, {"a": 80_000, "b": 20_000})
    assert found == pytest.approx(0.4159, abs=1e-3)


def test_nothing_is_said_before_the_reference_and_the_present_are_whole() -> None:
    observed = Observed()
    observed.drift.observe(1, 0.5, *STEP)
    assert not observed.classes.values
    answered(observed, 10, 0.5)
    assert "bundle_answer_drift_index{" not in text([observed.drift])


def test_a_shift_shows_and_classes_are_bounded() -> None:
    observed = Observed()
    answered(observed, 200, 0.95)
    answered(observed, 200, 0.95)
    assert set(observed.drift.versions[STEP].distances(observed.drift.bounds).values()) == {0}
    answered(observed, 1, 0.35)
    distances = observed.drift.versions[STEP].distances(observed.drift.bounds)
    assert min(distances.values()) > 0.25
    assert len(observed.classes.values) == NAMED + 1
    assert sum(observed.classes.values.values()) == 3 * ANSWERS
    assert 'bundle_answer_drift_index{model="m",version="1",of="class"}' in text([observed.drift])
