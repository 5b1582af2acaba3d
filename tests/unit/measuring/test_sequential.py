"""What is claimed of a stream at any moment holds as often as it says."""

from math import inf

import numpy as np
import pytest

from benchmark.simulated import verdicts
from scripts.evaluation.sequential import (
    Drop,
    count_needed,
    count_share,
    find_lower_bound,
    find_quantile_bounds,
    find_upper_bound,
)
from scripts.rollout.stream import Answer
from scripts.rollout.verdict import Figures, is_certain


def test_verdicts_are_as_certain_as_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Of sixty simulated rollouts each: it ends with 1 if a claim is wrong too often."""
    assert verdicts.main(rollouts=60, items=12_000) == 0
    assert "| equal | " in capsys.readouterr().out


def test_bounds_close_in_on_the_share() -> None:
    for count, of in ((0, 10), (0, 1000), (30, 1000), (500, 1000), (1000, 1000)):
        low, high = (
            find_lower_bound(count_share(count, of)),
            find_upper_bound(count_share(count, of)),
        )
        assert 0 <= low <= count / of <= high <= 1
    assert find_upper_bound(count_share(0, 1000)) < 0.01 < find_upper_bound(count_share(0, 500))
    assert find_upper_bound({}) == 1 and find_lower_bound({}) == pytest.approx(0)


def test_it_says_how_many_would_do() -> None:
    drop = Drop(3, 1, 100)
    assert drop.judge(0.01) == "undecided"
    needed = drop.count_needed(0.01)
    assert needed
    times = (100 + needed) / 100
    assert Drop(round(3 * times), round(times), round(100 * times)).judge(0.01) != "undecided"
    assert Drop(2, 1, 100).count_needed(0.01) is None  # as much as is allowed
    assert count_needed(0.5, {}) is None


def test_a_quantile_lies_between_its_bounds() -> None:
    times = np.random.default_rng(1).exponential(10, 3000)
    for share in (0.5, 0.95, 0.99):
        low, high = find_quantile_bounds(times, share)
        assert low < np.quantile(times, share) < high < 2 * low
    low, high = find_quantile_bounds(times[:100], 0.99)
    assert 0 < low < inf == high
    assert find_quantile_bounds([], 0.5) == (-inf, inf)
    assert find_quantile_bounds([7.0] * 2000, 0.99) == (7, 7)


def test_speed_is_certain_before_the_time_is_over() -> None:
    def figures(ms: float, count: int, failed: int = 0) -> Figures:
        failures = [Answer(1, 0, 1, None, "refused")] * failed
        return Figures.from_answers([Answer(1, 0, ms, 1)] * count + failures)

    old = figures(40, 1000)
    assert is_certain(old, figures(60, 1000), 2)
    assert not is_certain(old, figures(60, 100), 2)  # too few
    assert not is_certain(old, figures(300, 1000), 2)
    assert not is_certain(figures(40, 1000, failed=1), figures(60, 1000), 2)
    assert "a p99 of at most 60 ms" in figures(60, 1000).describe_certainty(1000)
    few = figures(60, 100, failed=3).describe_certainty(100)
    assert "at most 1" in few and "% errors in 100 (of its p99: from about " in few
