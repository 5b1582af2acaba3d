from __future__ import annotations

from pathlib import Path

import pytest

from scripts.recipes.layout import Share
from scripts.settings import dotenv_file
from scripts.settings.settings import DEFAULTS, Settings
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.tuning.goal import Goal, Score
from scripts.tuning.search import Candidate, axes, descend, shares

START = Candidate("auto", Share(2, 1), Share(2, 1))


def worth(candidate: Candidate) -> float:
    """A landscape with one summit, which lies off every axis through the start."""
    gain = {"int8": 40, "auto": 20}.get(candidate.precision, 0)
    return gain - abs(candidate.network.instances - 4) - abs(candidate.preprocessing.threads - 4)


def search(seconds_left: int = 1000) -> tuple[Candidate, list[Candidate]]:
    asked: list[Candidate] = []

    def beats(challenger: Candidate, best: Candidate) -> bool:
        asked.append(challenger)
        return worth(challenger) > worth(best)

    def time_is_left() -> bool:
        return len(asked) < seconds_left

    return descend(START, axes(4, ["auto", "fp32", "int8"]), beats, time_is_left), asked


def test_the_summit_is_found_and_nobody_is_asked_twice() -> None:
    best, asked = search()
    assert (best.precision, best.network.instances, best.preprocessing.threads) == ("int8", 4, 4)
    assert len(asked) == len(set(asked)) and START not in asked


def test_out_of_time_the_best_so_far_is_taken() -> None:
    best, asked = search(seconds_left=2)
    assert len(asked) == 2
    assert best == Candidate("int8", Share(2, 1), Share(2, 1))


def test_where_nothing_is_better_it_stays_as_it_is() -> None:
    assert descend(START, axes(2, ["auto"]), lambda *_: False, lambda: True) == START


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
def test_shares_keep_within_the_machine(cores: int) -> None:
    tried = list(shares(cores))
    assert len(tried) == len(set(tried)) <= 2 * cores.bit_length()
    assert all(share.instances <= cores and share.threads <= cores for share in tried)
    assert Share(1, cores) in tried


def test_throughput_wants_a_lead_that_is_no_chance() -> None:
    goal = Goal(None)
    assert goal.concurrencies(2) == [8]
    assert goal.beats(Score(8, 105, 900), Score(8, 100, 100))
    assert not goal.beats(Score(8, 101, 10), Score(8, 100, 100))


def test_a_limit_comes_before_throughput() -> None:
    goal = Goal(50)
    assert goal.concurrencies(2) == [1, 2, 4, 8]
    within, beyond, far_beyond = Score(1, 30, 40), Score(1, 90, 60), Score(1, 90, 90)
    assert goal.beats(within, beyond) and not goal.beats(beyond, within)
    assert goal.beats(beyond, far_beyond)
    assert goal.best([within, Score(2, 50, 49), Score(4, 60, 51)]).throughput == 50
    assert goal.best([far_beyond, beyond]) == beyond


def test_settings_are_changed_where_they_stand() -> None:
    text = (
        "# of mine\nARCH=resnet18\n\n# how many\nNETWORK_INSTANCES=1\n# NETWORK_THREADS=9\nBIND=::1"
    )
    once = dotenv_file.change_values(
        text, {"NETWORK_INSTANCES": "2", "NETWORK_THREADS": "1"}, "make tune: a"
    )
    assert once == (
        "# of mine\nARCH=resnet18\n\n# how many\n# make tune: a\nNETWORK_INSTANCES=2\n"
        "# NETWORK_THREADS=9\nBIND=::1\nNETWORK_THREADS=1\n"
    )
    twice = dotenv_file.change_values(once, {"NETWORK_INSTANCES": "4"}, "make tune: b")
    assert twice == once.replace("tune: a", "tune: b").replace("INSTANCES=2", "INSTANCES=4")


def test_a_later_line_of_the_same_setting_does_not_win() -> None:
    text = "export PRECISION=fp32\nPRECISION = bf16\n"
    assert (
        dotenv_file.change_values(text, {"PRECISION": "int8"}, "why") == "# why\nPRECISION=int8\n"
    )


def test_a_file_is_made_where_there_is_none_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    dotenv_file.change({"PRECISION": "int8"}, "make tune: a", path)
    assert path.read_text() == "# make tune: a\nPRECISION=int8\n"
    path.chmod(0o600)
    dotenv_file.change({"PRECISION": "fp32"}, "make tune: b", path)
    assert path.read_text() == "# make tune: b\nPRECISION=fp32\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [".env"]


def test_measured_is_the_flavour_that_serves_unless_another_is_asked_for() -> None:
    server = State("cpu", "", DEFAULTS)
    assert flavour.serving_or_chosen(Settings(DEFAULTS), server) == ("cpu", "it serves")
    asked = Settings(DEFAULTS).replace_with(FLAVOUR="local")
    assert flavour.serving_or_chosen(asked, server) == ("local", "as FLAVOUR says")
