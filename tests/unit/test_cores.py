"""Which cores a process of a model computes on, while others of it do or do not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundle_serving.cores import Cores

CORES = frozenset(os.sched_getaffinity(0))
needs_several = pytest.mark.skipif(len(CORES) < 2, reason="there is only one core")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "computing"
    for thread in threads():
        os.sched_setaffinity(thread, CORES)


def threads() -> list[int]:
    return [int(each.name) for each in Path("/proc/self/task").iterdir()]


def bound_to() -> set[frozenset[int]]:
    return {frozenset(os.sched_getaffinity(each)) for each in threads()}


@needs_several
def test_one_that_computes_alone_has_all_cores_and_several_have_one_each(file: Path) -> None:
    one, other = (Cores(number, len(CORES), file) for number in (0, 1))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with one.computing():
            assert bound_to() == {CORES}
            with other.computing():
                (of_other,) = bound_to()
                assert len(of_other) == 1
                with one.computing():
                    (of_one,) = bound_to()
                    assert len(of_one) == 1 and of_one != of_other
        with one.computing():
            assert bound_to() == {CORES}
    finally:
        done.set()
        thread.join()


@needs_several
def test_a_fault_does_not_leave_it_computing(file: Path) -> None:
    one, other = (Cores(number, len(CORES), file) for number in (0, 1))
    with pytest.raises(ValueError), one.computing():
        raise ValueError
    with other.computing():
        assert bound_to() == {CORES}


def test_few_processes_are_left_to_the_kernel(file: Path) -> None:
    some, unseen = Cores(0, len(CORES) - 1, file), Cores(0, 2, None)
    with some.computing(), Cores(1, len(CORES) - 1, file).computing(), unseen.computing():
        assert bound_to() == {CORES}
