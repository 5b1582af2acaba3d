from __future__ import annotations

import pytest

from benchmark.compare import OURS, Cell, summed_up
from benchmark.load import Answer, Round, summary


def test_a_round_counts_between_two_answers() -> None:
    """Two clients, an answer each every 0.1 s; what comes after the end counts for nothing."""
    answers = [Answer(n % 2, 0.1 * (n // 2), 0.1 * (n // 2 + 1)) for n in range(22)]
    found = summary(answers, concurrency=2, end=1.05)
    assert found.images_per_second == pytest.approx(20)
    assert found.p50 == pytest.approx(0.1)
    assert len(found.latencies) == 18


def test_of_a_short_round_everything_counts() -> None:
    found = summary([Answer(0, 0, 2), Answer(1, 0, 4)], concurrency=2, end=1)
    assert found.images_per_second == pytest.approx(0.5)
    assert len(found.latencies) == 2


def test_ratios_are_of_medians() -> None:
    def rounds(*rates: float) -> list[Round]:
        return [Round(rate, [1 / rate]) for rate in rates]

    slow = Cell("photo", 1, "textbook")
    figures = summed_up({Cell("photo", 1, OURS): rounds(90, 100, 120), slow: rounds(20, 25, 26)})
    assert figures[slow].bundle_is == pytest.approx(4)
    assert figures[slow].spread == pytest.approx(6 / 25)
