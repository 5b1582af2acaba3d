"""How many rows a request may have of a network, by what they cost."""

import time

import pytest

from bundle_serving import work


def test_rows_are_bounded_by_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, used = work.Rows(), 0.0
    monkeypatch.setattr(time, "process_time", lambda: used)
    assert rows.too_many(10_000) is None  # nothing is known of it

    def compute(count: int, seconds: float) -> None:
        nonlocal used
        with rows.computing(count):
            used += seconds

    compute(4, 4 * 0.75 / 64)
    compute(1, 0.5)  # by the quickest: the others may have been disturbed
    assert rows.too_many(64) is None
    assert "has 65 rows, and the limit of this network is 64" in (rows.too_many(65) or "")


def test_a_slow_network_takes_as_many_as_a_form_has(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, used = work.Rows(), iter((0.0, 3.0))
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    with rows.computing(1):
        pass
    assert rows.too_many(32) is None
    assert "send fewer at once" in (rows.too_many(33) or "")
