"""How the processes of a server share its cores.

Each computes on one of its own while as many of its model compute as there are cores, and otherwise
on all.

On several cores a network is computed sooner. But its threads wait for each other by spinning, and
where other processes could use those cores, that is wasted: bound to one core, a single thread does
nearly all of the work.

And few large pictures are decoded at once in all of them, so that small ones overtake these. An
execution of a step answers all of its requests together, and none is begun before it ends. So each
decodes what one request may ask for, and what is beyond that, or has to wait for its turn, is put
back: the door and Envoy send it again a little later.
"""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bundle_serving import work

# What the names of a server's files begin with, a file a model: in shared memory, because one that
# lies on a disk may have to wait for it.
VARIABLE = "BUNDLE_COMPUTING"
# In a model's config: the version that nobody waits for, since it is asked copies alone.
UNSEEN = "unseen"
# Of all that a request may ask for: what is larger waits for its turn, what is smaller for nothing.
LARGE, SMALL = 1 / 4, 1 / 16
# So often large ones make way for the others of their execution, which would wait for them.
MAKE_WAY = 8


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


class Later(Exception):
    """Not a fault of the request, which is to be sent again."""

    def __init__(self) -> None:
        super().__init__(work.LATER)


class Turns:
    """Of one process. Half of the cores are left to others."""

    def __init__(self, seen_in: Path | None = None, at_once: int | None = None) -> None:
        """`seen_in`: a file by which all processes know of each other, if there is one."""
        files = os.environ.get(VARIABLE)
        seen_in = seen_in or (Path(f"{files}large") if files else None)
        self._at_once = at_once or max(1, len(os.sched_getaffinity(0)) // 2)
        self._shared: int | None = None
        if seen_in:
            with suppress(OSError):  # another user's: then each process has its own turns
                self._shared = _open_shared(seen_in)
        self._lock = threading.Lock()
        # Of the execution that is going on: its pictures, and what was taken for them.
        self._pending, self._taken, self._has_turn = 0, 0.0, False
        self._made_way = 0

    def enter(self, pictures: int) -> None:
        with self._lock:
            self._pending += pictures

    def leave(self) -> None:
        """A picture. The turn ends with the last one."""
        with self._lock:
            self._pending -= 1
            if self._pending == 0:
                self._taken = 0
                if self._has_turn and self._shared is not None:
                    fcntl.lockf(self._shared, fcntl.LOCK_UN)
                self._has_turn = False

    def take(self, share: float, alone: bool = True) -> None:
        """Of all that a request may ask for; whether the execution has no other request."""
        with self._lock:
            if share > SMALL and self._taken and self._taken + share > 1:
                raise Later
            if share > LARGE:
                if not alone and self._made_way < MAKE_WAY:
                    self._made_way += 1
                    raise Later
                self._made_way = 0
                if self._has_turn or not self._finds_turn():
                    raise Later
                self._has_turn = True
            self._taken += share

    def _finds_turn(self) -> bool:
        """A process that dies loses its turn."""
        if self._shared is None:
            return True
        for number in range(self._at_once):
            try:
                fcntl.lockf(self._shared, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
                return True
            except OSError:
                pass
        return False


def map_shared(path: Path, size: int) -> mmap.mmap:
    file = _open_shared(path)
    try:
        os.ftruncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)


def _open_shared(path: Path) -> int:
    """Anybody may put a link there, which must not be followed; or a file that all may write, to
    hold its locks, or to shorten it under those who look into it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.fstat(file).st_uid != os.geteuid():
        os.close(file)
        raise PermissionError(errno.EPERM, "another user's", str(path))
    return file
