"""How many processes the HTTP service has, and what they count together."""

import os
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from bundle_door.answers import Refused
from bundle_door.http_process import MOST_KEPT, Told
from bundle_door.limits import Counts, Limits, Load
from bundle_door.settings import MOST_PROCESSES, count_processes
from bundle_door.watching.shadows import Compared
from bundle_door.watching.steps import Reading, Report, Steps
from bundle_serving.step_reports import Reports, process_of


@pytest.mark.parametrize(
    ("cores", "processes"), [(1, 1), (2, 1), (4, 1), (7, 1), (8, 2), (16, 4), (512, MOST_PROCESSES)]
)
def test_there_is_one_for_each_four_cores(
    cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    assert count_processes("") == processes
    assert count_processes("3") == 3
    assert count_processes("", 12) == 3
    monkeypatch.setenv("CORES", "20")  # to be used, of those that there are
    assert count_processes("") == 5
    for wrong in ("0", "-1", "many", str(MOST_PROCESSES + 1)):
        with pytest.raises(ValueError):
            count_processes(wrong)


def test_limits_are_of_all_processes(tmp_path: Path) -> None:
    limits = Limits(in_flight=2, in_flight_bytes=1000)
    loads = [Load(limits, Counts(2, number, tmp_path / "load")) for number in (0, 1)]
    with loads[0].request() as first, loads[1].request() as second:
        first.complete()
        first.take(400)
        second.complete()
        assert [load.requests for load in loads] == [2, 2]
        assert [load.own_bytes for load in loads] == [400, 0]
        with pytest.raises(Refused, match="hold 0 MB"):
            second.take(400)  # of what is left, half
        for load in loads:
            with pytest.raises(Refused, match="2 requests are in flight"):
                load.request()
        with loads[0].request(always=True) as late, pytest.raises(Refused):
            late.complete()
    assert [load.requests for load in loads] == [0, 0]


def test_what_a_process_had_in_hand_is_gone_with_it(tmp_path: Path) -> None:
    first, killed = (Counts(2, number, tmp_path / "load") for number in (0, 1))
    killed.add(Counts.BYTES, 700)
    assert first.sum_up(Counts.BYTES) == 700
    Counts(2, 1, tmp_path / "load")
    assert first.sum_up(Counts.BYTES) == 0


def test_a_client_cannot_be_followed_as_another() -> None:
    steps = Steps(lambda report: None)
    with steps.following() as followed:
        ids = [f"door.0-{number:x}" for number in range(1000)]
        steps.take(Report("m", "1", 1000, 1000, 0, 1, 2, ids))
        assert followed.reports == []


def test_a_report_goes_to_the_process_that_follows_the_request() -> None:
    reports = Reports("steps")
    reports.report_execution("m", "1", ["door.2-1f", "door.0-2", "mine", ""], 0, 0, 4)
    assert [len(way._waiting.splitlines()) for way in reports._ways.values()] == [1, 1]
    assert reports._ways[2]._path == "steps.2"
    # A client may call itself as it likes.
    assert [process_of(each) for each in ("door.x-1", "door.123-1", "", "door.7-")] == [0, 0, 0, 7]


def test_all_that_was_kept_for_the_first_process_is_read() -> None:
    """While that is started again, a line grows: of long names, each with a rate."""
    series, compared = ("p" * 80, "123", "http"), Compared("p" * 80, "123", "same", "i" * 128)
    told = Told(
        requests=[(series, 200, 0.123456789)] * MOST_KEPT,
        refusals=[429] * MOST_KEPT,
        charges=[("c" * 64, 31)] * MOST_KEPT,
        compared=[compared] * 100,  # one at a time is asked
        captures=["kept"] * MOST_KEPT,
    )
    line, found = msgspec.json.encode(told) + b"\n", list[Told]()
    reading = Reading(found.append, Told)
    reading.connection_made(transport := Mock())
    for at in range(0, len(line), 1 << 16):
        reading.data_received(line[at : at + (1 << 16)])
    assert found == [told] and not transport.close.called
