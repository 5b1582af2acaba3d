"""make trace: the parts of a request's time, and that they add up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scripts.base.errors import UserError
from scripts.measuring.one_request import parse_answer
from scripts.measuring.request_spans import draw_spans, spans

TIMINGS = {
    "total_ms": 30.0,
    "spans": [
        {"name": "received", "start_ms": 0.0, "ms": 1.0},
        {"name": "preprocessing", "start_ms": 2.0, "ms": 8.0, "version": "1"},
        {"name": "network", "start_ms": 10.0, "ms": 19.0, "version": "1"},
    ],
}


def test_the_times_add_up() -> None:
    found = spans({"reading": 0.5, "connecting": 1.5}, 34.0, TIMINGS)
    assert [(each.where, each.ms) for each in found] == [
        ("client", 0.5), ("client", 1.5), ("wire", 2.0), ("door", 1.0), ("door", 1.0),
        ("step", 8.0), ("step", 19.0), ("door", 1.0), ("wire", 2.0),
    ]  # fmt: skip
    assert sum(each.ms for each in found) == 36.0 == found[-1].end
    for one, next_one in pairwise(found):
        assert one.end == pytest.approx(next_one.start)


def test_as_drawn() -> None:
    *lines, total = draw_spans(spans({"reading": 0.5}, 34.0, TIMINGS), 80)
    assert total.split() == ["total", "34.5", "ms"]
    (network,) = (line for line in lines if " network " in line)
    assert network.startswith("step    network") and "19.0" in network and network.endswith("█")


def test_a_refusal_is_an_error_with_its_remedy() -> None:
    with pytest.raises(UserError) as refused:
        parse_answer(400, b'{"error": {"cause": "no picture", "remedy": "send one"}}')
    assert (refused.value.cause, refused.value.remedy) == ("no picture", "send one")
