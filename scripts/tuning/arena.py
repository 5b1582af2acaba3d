"""Candidates, served side by side and measured in turn: disturbances then affect both alike."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.measuring import rounds
from scripts.measuring.perf_analyzer import PerfAnalyzer
from scripts.measuring.photos import Inputs
from scripts.measuring.workload import Configuration, Target
from scripts.stacks.stack import Stack
from scripts.tuning.search import Candidate, Goal, Score

# Seconds of one comparison. Its result is measured again, longer, before it is used.
ROUNDS = 2
SECONDS = 2.0


@dataclass
class Arena:
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
