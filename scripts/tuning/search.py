"""The search of settings: its goal, which to try and in which order, which of two servers side by
side is closer to the goal, and whether .env changes by that."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.measuring import rounds
from scripts.measuring.measurement import Measurement
from scripts.measuring.perf_analyzer import PerfAnalyzer
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import Configuration, Target
from scripts.recipes.layout import Share
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings
from scripts.stacks.stack import Stack

# A smaller lead may be chance.
LEAD = 1.03
# Of the network on a GPU: each holds the memory that a batch takes.
MOST_COPIES = 4
# Seconds of one comparison. Its result is measured again, longer, before it is used.
ROUNDS = 2
SECONDS = 2.0


@dataclass(frozen=True)
class Candidate:
    precision: str
    network: Share
    preprocessing: Share

    def __str__(self) -> str:
        return (
            f"{self.precision}, network {_words(self.network)}, "
            f"preprocessing {_words(self.preprocessing)}"
        )

    @property
    def settings(self) -> dict[str, str]:
        return {
            "PRECISION": self.precision,
            "NETWORK_INSTANCES": str(self.network.instances),
            "NETWORK_THREADS": str(self.network.threads),
            "PREPROCESS_INSTANCES": str(self.preprocessing.instances),
            "PREPROCESS_THREADS": str(self.preprocessing.threads),
        }


@dataclass(frozen=True)
class OnGpu(Candidate):
    """All are of one plan, whose precision is no setting; the network is copied, and has no threads
    of its own."""

    def __str__(self) -> str:
        return (
            f"{self.precision}, copies of the network per GPU: {self.network.instances}, "
            f"preprocessing {_words(self.preprocessing)}"
        )

    @property
    def settings(self) -> dict[str, str]:
        found = super().settings
        return {name: found[name] for name in found if name not in ("PRECISION", "NETWORK_THREADS")}


def _words(share: Share) -> str:
    return f"{share.instances} x {share.threads}"


# What is varied, one at a time, the most influential first: a field and its values.
Axes = Mapping[str, Sequence[Any]]


def axes(cores: int, precisions: Sequence[str], one_step: bool = False) -> Axes:
    """In one step, the network's processes decode."""
    found: Axes = {"precision": precisions, "network": list(shares(cores))}
    return found if one_step else {**found, "preprocessing": list(shares(cores))}


def axes_on_gpu(cores: int, is_copied: bool, decodes: bool) -> Axes:
    """Whether settings say how often the network is there, and whether processes decode."""
    copies = [Share(number, 1) for number in range(1, MOST_COPIES + 1)]
    found: Axes = {"network": copies} if is_copied else {}
    return {**found, "preprocessing": list(shares(cores))} if decodes else found


def shares(cores: int) -> Iterator[Share]:
    """From one process with all threads to one process per core; each also with twice the threads,
    since an idle process leaves its core to others."""
    instances = 1
    while instances <= cores:
        threads = max(1, cores // instances)
        yield Share(instances, threads)
        if instances > 1:
            yield Share(instances, min(cores, 2 * threads))
        instances *= 2


@dataclass(frozen=True)
class Score:
    """One server's answers per second over all kinds of pictures, and the slowest kind's p95."""

    concurrency: int
    throughput: float
    p95: float

    def __str__(self) -> str:
        return (
            f"{self.throughput:.1f} answers per second at p95 {self.p95:.0f} ms, "
            f"{self.concurrency} at a time"
        )

    @classmethod
    def from_measurements(cls, concurrency: int, measurements: Sequence[Measurement]) -> Score:
        """Failed rounds are skipped; if all failed, the score is zero."""
        rates = [each.throughput.median for each in measurements]
        if not all(rates):
            return cls(concurrency, 0.0, float("inf"))
        return cls(
            concurrency, geometric_mean(rates), max(each.p95.median for each in measurements)
        )


@dataclass(frozen=True)
class Goal:
    latency_ms: float | None  # the limit for p95; None: maximum throughput

    def __str__(self) -> str:
        if self.latency_ms is None:
            return "the most answers per second"
        return f"the most answers per second with 95% of the answers within {self.latency_ms:g} ms"

    def concurrencies(self, cores: int) -> list[int]:
        """Concurrencies to try: enough to keep a server busy; with a limit, increasing ones."""
        busy = 4 * cores
        return [busy] if self.latency_ms is None else sorted({1, cores, 2 * cores, busy})

    def is_met(self, score: Score) -> bool:
        return self.latency_ms is None or score.p95 <= self.latency_ms

    def best(self, scores: Sequence[Score]) -> Score:
        """The best of one server's scores at several concurrencies."""
        meeting = [score for score in scores if self.is_met(score)]
        if meeting:
            return max(meeting, key=lambda score: score.throughput)
        return min(scores, key=lambda score: score.p95)

    def beats(self, challenger: Score, best: Score) -> bool:
        if self.is_met(challenger) != self.is_met(best):
            return self.is_met(challenger)
        if self.is_met(best):
            return challenger.throughput > best.throughput * LEAD
        return challenger.p95 * LEAD < best.p95


@dataclass
class Arena:
    """Candidates, served side by side and measured in turn: disturbances then affect both alike."""

    stack: Stack
    pipeline: str  # its ensemble
    lay_out: Callable[[Candidate, Path], None]
    goal: Goal
    cores: int
    inputs: Sequence[Inputs]
    analyzer: PerfAnalyzer
    folder: Path
    scores: dict[Candidate, Score] = field(default_factory=dict)  # the latest of each
    duel_seconds: float = 0.0  # of the latest comparison
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _up: dict[Candidate, tuple[ExitStack, Target]] = field(default_factory=dict)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: object) -> None:
        for candidate in list(self._up):
            self._end(candidate)

    def beats(self, challenger: Candidate, best: Candidate) -> bool:
        began = time.monotonic()
        if not self.starts(challenger, best):
            return False
        new, old = self.duel(challenger, best, ROUNDS)
        won = self.goal.beats(new, old)
        self._end(best if won else challenger)
        self.duel_seconds = time.monotonic() - began
        console.note(
            f"{challenger}: {new}; {'better' if won else 'not better'} than the best so far, {old}"
        )
        return won

    def starts(self, challenger: Candidate, best: Candidate) -> bool:
        """Beside the best, which comes first: a GPU may not have memory for both."""
        self._serve_candidate(best)
        try:
            self._serve_candidate(challenger)
        except UserError as fault:
            console.note(f"{challenger} is passed over: {fault.cause}")
            return False
        return True

    def duel(self, one: Candidate, other: Candidate, times: int) -> tuple[Score, Score]:
        pair = one, other
        targets = [self._serve_candidate(candidate) for candidate in pair]
        scores: list[list[Score]] = [[], []]
        for concurrency in self.goal.concurrencies(self.cores):
            asked = [
                [Configuration(target, inputs, "grpc", 1, concurrency) for inputs in self.inputs]
                for target in targets
            ]
            measured = rounds.measure([*asked[0], *asked[1]], self.analyzer, times, times, SECONDS)
            half = len(self.inputs)
            scores[0].append(Score.from_measurements(concurrency, measured[:half]))
            scores[1].append(Score.from_measurements(concurrency, measured[half:]))
            if not any(self.goal.is_met(each[-1]) for each in scores):
                break  # higher concurrencies take even longer
        self.scores |= {each: self.goal.best(of) for each, of in zip(pair, scores, strict=True)}
        return self.scores[one], self.scores[other]

    def _serve_candidate(self, candidate: Candidate) -> Target:
        if candidate not in self._up:
            with ExitStack() as starting:
                folder = self.folder / str(next(self._numbers))
                starting.callback(shutil.rmtree, folder, ignore_errors=True)
                repository = folder / "repository"
                self.lay_out(candidate, repository)
                with console.waiting(f"starting {candidate}"):
                    http, grpc = starting.enter_context(
                        self.stack.temporary(repository, folder / "server.log", self.pipeline)
                    )
                target = Target.for_model(
                    str(candidate), self.pipeline, Address.parse(http), Address.parse(grpc)
                )
                self._up[candidate] = starting.pop_all(), target
        return self._up[candidate][1]

    def _end(self, candidate: Candidate) -> None:
        if candidate in self._up:
            stack, _ = self._up.pop(candidate)
            stack.close()


def descend(
    start: Candidate,
    axes: Axes,
    beats: Callable[[Candidate, Candidate], bool],
    time_is_left: Callable[[], bool],
) -> Candidate:
    """Descends along one axis after the other until none improves. `beats` compares a challenger
    with the best so far; nothing is a challenger twice."""
    best, known = start, {start}
    improved = True
    while improved:
        improved = False
        for axis, values in axes.items():
            for value in values:
                challenger = replace(best, **{axis: value})
                if challenger in known:
                    continue
                if not time_is_left():
                    return best
                known.add(challenger)
                if beats(challenger, best):
                    best, improved = challenger, True
    return best


def conclude(
    settings: Settings,
    goal: Goal,
    winner: Candidate,
    start: Candidate,
    scores: dict[Candidate, Score],
    circumstances: str,
) -> None:
    """By the final comparison."""
    if start not in scores:
        raise UserError(
            "no other settings could be served beside the current ones",
            "the lines above say why; .env is unchanged",
        )
    new, old = scores[winner], scores[start]
    if not new.throughput:
        raise UserError(
            "no answers were counted with any settings",
            "allow more time, such as MINUTES=15; .env is unchanged",
        )
    if not goal.is_met(new):
        raise UserError(
            f"no settings answer 95% within {goal.latency_ms:g} ms (best: {new.p95:.0f} ms)",
            "allow more time, or use a smaller network; .env is unchanged",
        )
    if not goal.beats(new, old):
        console.note(f"nothing beats the current settings ({old}); .env is unchanged")
        return
    figures = f"{new}, was {old}"
    change = {name: value for name, value in winner.settings.items() if value != settings[name]}
    dotenv_file.change(change, f"make tune: {date.today()}: {figures} ({goal}; {circumstances})")
    console.note(f"{winner}: {figures}")
    console.note(f".env now says {', '.join(f'{k}={v}' for k, v in change.items())}")
    console.note("apply them: make up")
