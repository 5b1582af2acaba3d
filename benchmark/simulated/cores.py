"""A server with more cores than are at hand: how many pictures so many processes of so many threads
answer a second. Requests, processes and cores are simulated; how long a core decodes, computes and
does the rest is measured (cores_measured.py).

As the server does it: a process that is free takes the requests that wait, as one batch, decodes
them and computes; the threads that are at work share the cores. Where there are as many processes
as cores and all compute, each keeps to a core of its own, with one thread
(serving/bundle_serving/process/cores.py). A client sends the next picture when the last one is
answered.

Assumed: cores are alike, and as fast together as alone: neither memory nor the processor's power
holds them back, and no core is far from another one's memory.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scripts.recipes.layout import Share

MOST_IN_A_BATCH = 8
# No picture takes exactly as long as the other; without this, clients move in step.
SPREAD = 0.1
# The first ones find an empty server.
WARM_UP = 0.2


@dataclass(frozen=True)
class Service:
    """Milliseconds: of one core for a picture, and of a batch on so many threads."""

    decode: float
    network: Mapping[tuple[int, int], float]  # by threads (one and two) and pictures
    around: float  # door, Triton and client

    def compute(self, threads: int, batch: int) -> float:
        """More threads than two, by Amdahl: what two cannot share, many cannot either."""
        known = max(size for _, size in self.network if size <= batch)
        one, two = (self.network[number, known] * batch / known for number in (1, 2))
        shared = min(1.0, max(0.0, 2 * (1 - two / one)))
        return one * (1 - shared + shared / threads)


@dataclass(frozen=True)
class Answered:
    rate: float  # a second
    p50: float  # milliseconds
    p95: float


@dataclass
class Work:
    """What one process, or the door for one picture, does at present."""

    stage: str
    began: list[float]  # of its requests, when they were sent
    left: float = 1.0  # of its work
    factor: float = 1.0


@dataclass
class Simulation:
    service: Service
    cores: int
    share: Share
    decoders: int  # threads of a process
    clients: int
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    now: float = 0.0
    waiting: deque[float] = field(default_factory=deque)
    at_work: list[Work] = field(default_factory=list)
    busy: int = 0  # processes

    def answers(self) -> Iterator[tuple[float, float]]:
        """When each is answered, and how long that took."""
        for _ in range(self.clients):
            self._begin("before", [self.now])
        while True:
            speeds = self._compute_speeds()
            pairs = zip(self.at_work, speeds, strict=True)
            passed = min(work.left * work.factor / speed for work, speed in pairs)
            self.now += passed
            for work, speed in zip(self.at_work, speeds, strict=True):
                work.left -= passed * speed / work.factor
            done = [work for work in self.at_work if work.left < 1e-9]
            self.at_work = [work for work in self.at_work if work.left >= 1e-9]
            for work in done:
                yield from self._go_on(work)
            self._take_waiting()

    def _compute_speeds(self) -> list[float]:
        """Of each, what share of its work a millisecond does."""
        in_processes = sum(work.stage in ("decode", "network") for work in self.at_work)
        bound = self.share.instances >= self.cores and in_processes >= self.cores
        threads, times = [], []
        for work in self.at_work:
            count, pictures = 1, len(work.began)
            if work.stage == "decode":
                count = 1 if bound else min(self.decoders, pictures)
                times.append(self.service.decode * pictures / count)
            elif work.stage == "network":
                count = 1 if bound else self.share.threads
                times.append(self.service.compute(count, pictures))
            else:
                times.append(self.service.around / 2)
            threads.append(count)
        slowed = min(1.0, self.cores / sum(threads))
        return [slowed / time for time in times]

    def _go_on(self, work: Work) -> Iterator[tuple[float, float]]:
        if work.stage == "before":
            self.waiting += work.began
        elif work.stage == "decode":
            self._begin("network", work.began)
        elif work.stage == "network":
            self.busy -= 1
            for began in work.began:
                self._begin("after", [began])
        else:
            yield self.now, self.now - work.began[0]
            self._begin("before", [self.now])

    def _take_waiting(self) -> None:
        while self.waiting and self.busy < self.share.instances:
            size = min(len(self.waiting), MOST_IN_A_BATCH)
            self._begin("decode", [self.waiting.popleft() for _ in range(size)])
            self.busy += 1

    def _begin(self, stage: str, began: list[float]) -> None:
        factor = self.chance.uniform(1 - SPREAD, 1 + SPREAD)
        self.at_work.append(Work(stage, began, factor=factor))


def simulate(
    service: Service, cores: int, share: Share, clients: int, requests: int = 1500
) -> Answered:
    decoders = Share.of_cores(cores).threads
    simulation = Simulation(service, cores, share, decoders, clients)
    answers = [answer for answer, _ in zip(simulation.answers(), range(requests), strict=False)]
    first, counted = round(WARM_UP * requests), answers[round(WARM_UP * requests) :]
    took = sorted(ms for _, ms in counted)
    seconds = (answers[-1][0] - answers[first - 1][0]) / 1000
    return Answered(len(counted) / seconds, took[len(took) // 2], took[int(0.95 * len(took))])
