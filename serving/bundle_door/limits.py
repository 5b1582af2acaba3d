"""How much the door takes: from one request, and from all of them together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bundle_door.answers import RETRY_SOON, Refused
from bundle_door.settings import BODY_MB, IN_FLIGHT, MOST_MESSAGE_MB, MOST_PROCESSES
from bundle_serving.process.cores import map_shared

MEGABYTE = 1_000_000

# Of one request, over HTTP as over gRPC. Triton's time grows by the square of the inputs, and what
# it repeats of a name or a text must fit into a header of its answer.
MOST_TENSORS = 64  # inputs; outputs as well
MOST_PARAMETERS = 64  # of the request, and of each tensor
MOST_NAME = 256  # characters: of a model, version, tensor, parameter or region
MOST_ID = 128
MOST_TEXT = 4000  # characters of a parameter's value
MOST_OBJECTS = 500_000  # lists and texts of a tensor in JSON, each of which Python makes an object
MOST_SHAPE = 32 * 10  # bytes of it, over gRPC
# Of a message over gRPC, in all, such as texts that are not in raw_input_contents.
MOST_VALUES = 4096

# JSON of a request or an answer, of which Python makes objects of 20 times its size.
MOST_JSON = 8 * MEGABYTE
# Of a form: its files, what it has besides, and of each part of it.
MOST_FILES = 32
MOST_FIELDS = 32
MOST_FIELD_BYTES = 64_000
MOST_PART_HEADERS = 3_000  # which take a time by their square to be read
# What a compressed body may hold for each byte of it, and what it may hold anyway. Texts and pixels
# have up to 20 for each, nothing but zeros a thousand.
MOST_RATIO = 100
CLEAR_ANYWAY = 4 * MEGABYTE
# A body is late that does not begin, or comes more slowly than this (bytes a second). For what it
# sends faster it may pause, for so long at most; and later than that it is refused.
SLOWEST = 4_000
BEGIN_S, AHEAD_S, LATE_S = 0.25, 1.0, 10.0


def room_for(body_bytes: int) -> int:
    """Of all bodies: a request that is alone finds half of it, and may be compressed."""
    return max(256 * MEGABYTE, 4 * body_bytes)


@dataclass(frozen=True)
class Limits:
    # A request's body, as sent and as decompressed.
    body_bytes: int = BODY_MB * MEGABYTE
    # Of all requests that are being answered, and of all whose bodies are on their way.
    in_flight: int = IN_FLIGHT
    arriving: int = 1200
    # Of both.
    in_flight_bytes: int = room_for(BODY_MB * MEGABYTE)
    connections: int = 4000
    # For an answer, for a request to arrive, and for a connection on which nothing happens.
    answer_s: float = 60
    arrival_s: float = 60
    idle_s: float = 300

    @property
    def message_bytes(self) -> int:
        """Over gRPC."""
        return min(self.body_bytes, MOST_MESSAGE_MB * MEGABYTE)


class Counts:
    """How much each process of the HTTP service has in hand: in memory that they share, each writes
    its own row, and reads the sum of all."""

    REQUESTS, BYTES, ARRIVING, WAITING = WHICH = range(4)

    def __init__(self, processes: int = 1, number: int = 0, file: Path | None = None) -> None:
        row = 8 * len(self.WHICH)
        # However many there are, else it would have to shrink under those that use it.
        memory = map_shared(file, row * MOST_PROCESSES) if file else bytearray(row)
        rows = memoryview(memory).cast("q")[: len(self.WHICH) * processes]
        self._all = [rows[which :: len(self.WHICH)] for which in self.WHICH]
        self._number = number
        for which in self.WHICH:  # what an earlier process had in hand is gone with it
            self.set_own(which, 0)

    def set_own(self, which: int, count: int) -> None:
        self._all[which][self._number] = count

    def add(self, which: int, count: int) -> None:
        self._all[which][self._number] += count

    def own(self, which: int) -> int:
        return self._all[which][self._number]

    def sum_up(self, which: int) -> int:
        return sum(self._all[which])


class Load:
    """The requests that are being read or answered, and the bytes of their bodies, and of answers
    that are being sent.

    A body takes its room as it comes, at most as much as it leaves to all others: the smaller a
    request, the longer it finds room. Where there is none, what comes most slowly makes room, and
    answers that nobody reads. An answer always takes its room.
    """

    def __init__(self, limits: Limits, counts: Counts | None = None) -> None:
        """`counts`: of all processes of the HTTP service, which share these limits."""
        self.limits = limits
        self.counts = counts or Counts()
        self.arriving: set[Share] = set()
        self.unread: set[Share] = set()

    @property
    def requests(self) -> int:
        """Those that are complete."""
        return self.counts.sum_up(Counts.REQUESTS)

    @property
    def bytes(self) -> int:
        return self.counts.sum_up(Counts.BYTES)

    @property
    def own_bytes(self) -> int:
        """Of these, what this process has."""
        return self.counts.own(Counts.BYTES)

    def request(self, always: bool = False) -> Share:
        """`always`: one without a body, which finds a place whatever there is."""
        if not always and (waiting := self.requests) >= self.limits.in_flight:
            raise in_flight(waiting)
        return Share(self, always)

    @contextmanager
    def hold_answer(self, size: int, client: str, end: Callable[[], None]) -> Iterator[None]:
        """Until all of it is on its way; it may be ended before that."""
        with Share(self, complete=False) as share:
            most = self.limits.in_flight_bytes
            while size <= most < self.bytes + size and self.drop_some():
                pass
            share.send(size, client, end)
            self.unread.add(share)
            yield

    def end(self, share: Share) -> None:
        self.unread.discard(share)
        self.arriving.discard(share)
        self.counts.set_own(Counts.ARRIVING, len(self.arriving))

    def drop_late(self) -> None:
        """Though there is room: in a flood they may be late for no fault of theirs."""
        if self.bytes > self.limits.in_flight_bytes / 2:
            return
        long_ago = time.monotonic() - LATE_S
        for share in [share for share in self.arriving if share.due < long_ago]:
            share.drop(Refused(408, "the body comes too slowly; send it again"))

    def drop_some(self) -> bool:
        """A tenth of those that are late, the latest; of the client first who holds most. False:
        none is."""
        now = time.monotonic()
        late = [share for share in self.arriving | self.unread if share.due < now]
        held: Counter[str] = Counter()
        for share in late:
            held[share.client] += max(share.bytes, 1)
        late.sort(key=lambda share: (-held[share.client], share.due))
        for share in late[: 1 + len(late) // 10]:
            share.drop(busy("the body comes too slowly for that"))
        return bool(late)


class Share:
    """What one request holds of the load, as long as it is entered."""

    def __init__(self, load: Load, complete: bool) -> None:
        self._load = load
        self.bytes = 0
        self._complete = complete
        # While it arrives: whose it is, how it is refused, and by when it should go on.
        self.client = ""
        self._refuse: Callable[[Refused], None] | None = None
        self.due = 0.0

    def __enter__(self) -> Share:
        self._load.counts.add(Counts.REQUESTS, self._complete)
        return self

    def __exit__(self, *_: object) -> None:
        self._load.counts.add(Counts.REQUESTS, -self._complete)
        self._free()

    def arrive(self, client: str, refuse: Callable[[Refused], None]) -> None:
        """From now on it may be refused, if it comes too slowly."""
        load = self._load
        while (arriving := load.counts.sum_up(Counts.ARRIVING)) >= load.limits.arriving:
            if not load.drop_some():
                raise busy(f"{arriving} requests are arriving")
        self.client, self._refuse, self.due = client, refuse, time.monotonic() + BEGIN_S
        load.arriving.add(self)
        load.counts.set_own(Counts.ARRIVING, len(load.arriving))

    def take(self, count: int) -> None:
        load = self._load
        while self.bytes + count > load.limits.in_flight_bytes - load.bytes - count:
            if not load.drop_some():
                raise busy(f"the requests in flight hold {load.bytes // MEGABYTE} MB")
        load.counts.add(Counts.BYTES, count)
        self.bytes += count
        self.due = min(self.due + count / SLOWEST, time.monotonic() + AHEAD_S)

    def send(self, size: int, client: str, end: Callable[[], None]) -> None:
        """An answer, which its client should read soon."""
        self.client, self._refuse = client, lambda _: end()
        self.due = time.monotonic() + AHEAD_S
        self._load.counts.add(Counts.BYTES, size)
        self.bytes = size

    def complete(self) -> None:
        """All of it is there: it takes a place among those that are answered."""
        load = self._load
        load.end(self)
        # First, and then sees whether it was there: another process may do the same.
        load.counts.add(Counts.REQUESTS, 1)
        if (taken := load.requests) > load.limits.in_flight:
            load.counts.add(Counts.REQUESTS, -1)
            raise in_flight(taken - 1)
        self._complete = True

    def drop(self, refusal: Refused) -> None:
        self._free()
        if self._refuse:
            self._refuse(refusal)

    def _free(self) -> None:
        self._load.end(self)
        self._load.counts.add(Counts.BYTES, -self.bytes)
        self.bytes = 0


def busy(why: str) -> Refused:
    return Refused(503, f"the server is busy: {why}; try again in a second", RETRY_SOON)


def in_flight(count: int) -> Refused:
    return busy(f"{count} requests are in flight")


def too_large(limit: int) -> Refused:
    return Refused(413, f"the body is larger than {limit / MEGABYTE:g} MB; send less at once")
