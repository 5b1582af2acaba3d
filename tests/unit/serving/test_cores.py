"""Which cores a process of a model computes on, while others of it do or do not."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bundle_serving.process.cores import Cores, give_way, map_shared

CORES = frozenset(os.sched_getaffinity(0))
needs_several = pytest.mark.skipif(len(CORES) < 2, reason="there is only one core")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "computing"
    for thread in threads():
        with suppress(ProcessLookupError):  # it has just ended
            os.sched_setaffinity(thread, CORES)


def threads() -> list[int]:
    return [int(each.name) for each in Path("/proc/self/task").iterdir()]


def bound_to() -> set[frozenset[int]]:
    found = set()
    for each in threads():
        with suppress(ProcessLookupError):
            found.add(frozenset(os.sched_getaffinity(each)))
    return found


@needs_several
def test_each_has_a_core_of_its_own_once_as_many_compute_as_there_are(file: Path) -> None:
    each = [Cores(number, len(CORES), file) for number in range(len(CORES))]
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with ExitStack() as others:
            for one in each[:-1]:
                others.enter_context(one.computing())
                assert bound_to() == {CORES}
            found = set()
            for one in reversed(each):
                with one.computing():
                    found |= (its := bound_to())
                    assert len(its) == 1
                others.enter_context(one.computing())
            assert found == {frozenset([core]) for core in CORES}
        with each[0].computing():
            assert bound_to() == {CORES}
    finally:
        done.set()
        thread.join()


@needs_several
def test_a_fault_does_not_leave_it_computing(file: Path) -> None:
    each = [Cores(number, len(CORES), file) for number in range(len(CORES))]
    with pytest.raises(ValueError), each[0].computing():
        raise ValueError
    with ExitStack() as others:
        for one in each[1:]:
            others.enter_context(one.computing())
        assert bound_to() == {CORES}


def test_few_processes_are_left_to_the_kernel(file: Path) -> None:
    some, unseen = Cores(0, len(CORES) - 1, file), Cores(0, 2, None)
    with some.computing(), Cores(1, len(CORES) - 1, file).computing(), unseen.computing():
        assert bound_to() == {CORES}


def test_a_link_in_the_place_of_the_file_is_not_followed(file: Path, tmp_path: Path) -> None:
    (kept := tmp_path / "kept").write_text("mine")
    file.symlink_to(kept)
    with Cores(0, len(CORES), file).computing():
        assert bound_to() == {CORES} and kept.read_text() == "mine"


def test_who_gives_way_does_so_with_all_threads() -> None:
    process = multiprocessing.get_context("spawn").Process(target=gives_way)
    process.start()
    process.join()
    assert process.exitcode == 0


def gives_way() -> None:
    """In a process of its own, for there is no way back."""
    goes_on = threading.Event()
    before = threading.Thread(target=goes_on.wait)
    before.start()
    give_way()
    after = threading.Thread(target=goes_on.wait)
    after.start()
    policies = [os.sched_getscheduler(each) for each in threads()]
    goes_on.set()
    assert policies == 3 * [os.SCHED_IDLE]


def test_a_file_of_another_user_is_not_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could hold its locks, or shorten it under those who look into it."""
    file = tmp_path / "large"
    file.touch()
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user's"):
        map_shared(file, 8)
    assert not file.stat().st_size
