"""The result of measuring one configuration in several rounds. Pure functions on numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from scripts.measuring import server_side
from scripts.measuring.confidence import Estimate
from scripts.measuring.server_side import Counters, Waterfall
from scripts.measuring.workload import CASCADE, ENSEMBLE, NETWORK, Configuration

# If more than this share of a figure is uncertain, something else was using the machine. It is then
# measured again, and if that does not help, marked.
MOST_SPREAD = 0.15
# That tables show, and files have.
PERCENTILES = "p50", "p95", "p99"


@dataclass(frozen=True)
class Sample:
    """One round: pictures per second, latencies in milliseconds, and the server's counters."""

    throughput: float = 0.0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    requests: int = 0
    counted: dict[str, Counters] = field(default_factory=dict)
    # Of the server's processor time, milliseconds per picture, by process.
    cpu_ms: dict[str, float] = field(default_factory=dict)
    # Of a step that does the work of several: how long it worked as each of them.
    parts_s: dict[str, float] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)  # by each server, if there are several
    failure: str = ""
    number: int = 0  # of the round


class OfRounds:
    """A figure of a measurement: what its samples say of it together."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, one: Measurement, owner: type) -> Estimate:
        return Estimate.from_rounds([getattr(each, self._name) for each in one.good] or [0.0])


@dataclass(frozen=True)
class Measurement:
    configuration: Configuration
    samples: tuple[Sample, ...]
    throughput, mean = OfRounds(), OfRounds()
    p50, p95, p99 = OfRounds(), OfRounds(), OfRounds()

    @property
    def why_unstable(self) -> str:
        """Empty if the rounds agree and every request was answered."""
        if failure := self.failure:
            return failure
        if self.throughput.share > MOST_SPREAD:
            return f"the rounds differ by {self.throughput.share:.0%}"
        return ""

    @property
    def stable(self) -> bool:
        return not self.why_unstable

    @property
    def failure(self) -> str:
        """Why there is no figure, however uncertain."""
        return next((sample.failure for sample in self.samples if sample.failure), "")

    @property
    def cpu_ms(self) -> dict[str, float]:
        """Of the server's processor time per picture, by process, the largest first."""
        names = {name for sample in self.good for name in sample.cpu_ms}
        found = {n: fmean(each.cpu_ms.get(n, 0.0) for each in self.good) for n in names}
        return dict(sorted(found.items(), key=lambda one: -one[1]))

    @property
    def requests(self) -> int:
        return sum(sample.requests for sample in self.good)

    @property
    def waterfall(self) -> Waterfall | None:
        target = self.configuration.target
        counted = server_side.add_counters(sample.counted for sample in self.good)
        seen = sum(sample.mean * sample.requests for sample in self.good)
        flow = server_side.make_waterfall(
            target.model, target.steps, counted, seen / max(1, self.requests)
        )
        parts = {n: sum(each.parts_s.get(n, 0.0) for each in self.good) for n in target.parts}
        return server_side.divide(flow, parts) if flow else None

    @property
    def good(self) -> list[Sample]:
        return [sample for sample in self.samples if not sample.failure]


# What each is compared with.
BESIDE = {ENSEMBLE: NETWORK, CASCADE: ENSEMBLE}


@dataclass(frozen=True)
class Against:
    """The ensemble compared with the bare network, or the cascade with the ensemble of its large
    network, with the same requests in the same run."""

    share: Estimate  # of its throughput
    added: float  # to its median latency, in milliseconds


def compare_with(one: Measurement, others: Sequence[Measurement]) -> Against | None:
    asked = one.configuration
    for other in others if not one.failure else ():
        alike = other.configuration
        if (
            alike.target.label == BESIDE.get(asked.target.label)
            and not other.failure
            and _sends_alike(asked, alike)
            and (alike.protocol, alike.batch, alike.concurrency)
            == (asked.protocol, asked.batch, asked.concurrency)
        ):
            return Against(
                Estimate.ratio(*_same_rounds(one, other)),
                one.p50.median - other.p50.median,
            )
    return None


def _same_rounds(one: Measurement, other: Measurement) -> tuple[list[float], list[float]]:
    """The throughputs of those in which both were measured."""
    ours, theirs = ({s.number: s.throughput for s in each.samples} for each in (one, other))
    both = ours.keys() & theirs.keys()
    return [ours[number] for number in both], [theirs[number] for number in both]


def _sends_alike(one: Configuration, other: Configuration) -> bool:
    """A bare network gets pixels, whatever the pictures were."""
    return other.target.label == NETWORK or one.inputs is other.inputs


def name_compared(measurements: Sequence[Measurement]) -> str:
    """What the first of them is compared with."""
    return BESIDE.get(measurements[0].configuration.target.label, NETWORK)


Shares = dict[str, dict[str, int]]


def count_shares(measurements: Sequence[Measurement]) -> Shares:
    """Which of many servers answered how much: by protocol and server, the requests of all rounds;
    empty if there is one server."""
    found: dict[str, Counter[str]] = {}
    for one in measurements:
        for sample in one.samples:
            if sample.answered:
                found.setdefault(one.configuration.protocol, Counter()).update(sample.answered)
    return {protocol: dict(sorted(counted.items())) for protocol, counted in found.items()}


def share_rows(shares: Shares) -> list[tuple[str, str, int, float]]:
    """Protocol, server, requests, and their share of the protocol's."""
    return [
        (protocol, server, count, count / max(1, sum(counted.values())))
        for protocol, counted in shares.items()
        for server, count in counted.items()
    ]
