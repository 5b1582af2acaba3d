"""On which cores a process computes: on one of its own while as many of its model compute as there
are cores, and otherwise on all.

On several cores a network is computed sooner. But its threads wait for each other by spinning, and
where other processes could use those cores, that is wasted: bound to one core, a single thread does
nearly all of the work.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# What the names of a server's files begin with, a file a model: in shared memory, because one that
# lies on a disk may have to wait for it.
VARIABLE = "BUNDLE_COMPUTING"
# In a model's config: the version that nobody waits for, since it is asked copies alone.
UNSEEN = "unseen"


def files_of(shm_prefix: str) -> str:
    return f"/dev/shm/{shm_prefix}computing_"


class Cores:
    """Of the process `number` of several. Where each has more than one core, or where there is no
    file to see the others in, nothing is bound."""

    def __init__(self, number: int, processes: int, seen_in: Path | None) -> None:
        cores = sorted(os.sched_getaffinity(0))
        self._all = frozenset(cores)
        self._own = frozenset(cores[number % len(cores) :][:1])
        self._bound_to = self._all
        self._number = number
        self._computing: mmap.mmap | None = None
        if seen_in and 1 < len(cores) <= processes:
            with suppress(OSError):  # another user's: it is not needed for any answer
                # Those of two versions share a byte: then a guess is wrong, and no answer.
                self._computing = map_shared(seen_in, processes)

    @contextmanager
    def computing(self) -> Iterator[None]:
        if self._computing is None:
            yield
            return
        self._computing[self._number] = 1
        try:
            all_taken = self._computing[:].count(1) >= len(self._all)
            self._bind(self._own if all_taken else self._all)
            yield
        finally:
            self._computing[self._number] = 0

    def _bind(self, cores: Collection[int]) -> None:
        """Each thread of this process, by what costs nothing as long as nothing changes."""
        if cores == self._bound_to:
            return
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread.name), cores)
        self._bound_to = frozenset(cores)


def give_way() -> None:
    """From now on this process computes where nobody else wants a core."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended; or a container's rules are stricter than Docker's
            os.sched_setscheduler(int(thread.name), os.SCHED_IDLE, os.sched_param(0))


def map_shared(path: Path, size: int) -> mmap.mmap:
    """Anybody may put a link there, which must not be followed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)
