"""Judges a candidate by labelled data: both versions answer the same items."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bundle_serving.address import Address
from scripts.base import console
from scripts.base.errors import UserError
from scripts.evaluation.figures import Apart, Interval, Measured
from scripts.evaluation.scores import list_losses
from scripts.evaluation.sequential import CERTAINTY, Drop
from scripts.evaluation.share import Share
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import evaluating
from scripts.server.evaluating import Data, One
from scripts.stacks.state import State

NOT_PROVED = (
    "not proved: how right it is on labelled data of yours (EVAL=folder, docs/measuring/eval.md)"
)


@dataclass(frozen=True)
class Verdict:
    what: str
    objection: str  # empty if there is none


@dataclass(frozen=True)
class Contest(ABC):
    """Both versions answer the same items."""

    server: State
    path: Path

    @abstractmethod
    def ask(self, version: Version, model: str, only: Address | None = None) -> Generator[One[Any]]:
        """`only`: of many servers, this one."""

    def ask_all(self, version: Version, model: str) -> list[One[Any]]:
        with console.waiting(f"asking {version.title} about {self.path.name}"):
            return [*self.ask(version, model)]

    @abstractmethod
    def judge(
        self, live: Iterable[One[Any]], candidate: Iterator[One[Any]], most_drop: float
    ) -> tuple[Verdict, Share | Measured]:
        """And how right the candidate was. `most_drop` in points."""

    def note(self, new: Version, right: Share | Measured, shared: Shared) -> None:
        evaluating.note(new, shared, self.path, right, "rollout")


@dataclass(frozen=True)
class ContestOfClasses(Contest):
    """In the same random order, as either version knows their classes: so what the first of them
    say holds for all."""

    old: Data
    new: Data

    @classmethod
    def prepare(cls, server: State, path: Path, old: Version, new: Version) -> ContestOfClasses:
        """Whatever is wrong with the data is said before anything is touched."""
        both = (evaluating.read_data(each, path) for each in (old, new))
        return cls(server, path, *(each.shuffle() for each in both))

    def ask(self, version: Version, model: str, only: Address | None = None) -> Generator[One[Any]]:
        guess = version.pipeline.recipe.guess
        return evaluating.ask_each(self.server, model, self.old.items, guess, only)

    def judge(
        self, live: Iterable[One[Any]], candidate: Iterator[One[Any]], most_drop: float
    ) -> tuple[Verdict, Share]:
        """Ends as soon as it is certain."""
        first, second, what = Judged(self.old.truth), Judged(self.new.truth), "asking both versions"
        drop, total = Drop(0, 0, 0), len(self.old.items)
        with console.waiting(f"{what} about at most {total:,} items") as waiting:
            for one, other in zip(live, candidate, strict=True):
                first.add(one)
                second.add(other)
                if one[0] or other[0]:
                    drop = drop.add(first.right[-1], second.right[-1])
                waiting.show(f"{len(first.right):,} of {total:,}")
                if drop.judge(most_drop / 100) != "undecided":
                    break
        if not drop.of:
            raise UserError(
                f"neither version can read anything of {self.path.name} ({first.why})",
                "name other labelled data, or do without: EVAL=none",
            )
        asked = len(first.right)
        old, new = np.array(first.right), np.array(second.right)
        losses = list_losses(self.old.truth[:asked], old, new, self.old.classes)
        where = f"{asked:,} of {total:,} items of {self.path.name}"
        if unread := asked - drop.of:
            where += f", of which {unread:,} could not be read"
        return judge_drop(drop, where, most_drop, losses), Share(int(new.sum()), second.read)


@dataclass(frozen=True)
class ContestOfFigures(Contest):
    """Of a kind that has figures of its own, as detectors and segmentation. Such a figure is of all
    items together: there is no verdict before the last of them."""

    known: dict[int, Apart]  # by the version, as it knows its classes

    @classmethod
    def prepare(cls, server: State, path: Path, *versions: Version) -> ContestOfFigures | None:
        """None of other kinds."""
        known: dict[int, Apart] = {}
        for each in versions:
            made = each.workspace
            data = each.pipeline.recipe.read_apart(path, made) if made.onnx.is_dir() else None
            if data is None:
                return None
            known[each.number] = data
        return cls(server, path, known)

    def ask(self, version: Version, model: str, only: Address | None = None) -> Generator[One[Any]]:
        data = self.known[version.number]
        ask_one = evaluating.by_client(data)
        return evaluating.ask_each(self.server, model, data.items, ask_one, only)

    def judge(
        self, live: Iterable[One[Any]], candidate: Iterable[One[Any]], most_drop: float
    ) -> tuple[Verdict, Measured]:
        old, new = self.known.values()
        pairs = [*zip(live, candidate, strict=True)]
        both = [
            (one[0], other[0]) if one[0] is not None and other[0] is not None else (None, None)
            for one, other in pairs
        ]
        if not (read := sum(one is not None for one, _ in both)):
            why = next(one[2] or other[2] for one, other in pairs)
            raise UserError(
                f"no item of {self.path.name} can be read by both versions ({why})",
                "name other labelled data, or do without: EVAL=none",
            )
        first = old.compute_first([one for one, _ in both])
        second = new.compute_first([other for _, other in both])
        change = Interval.of_drawn(read, lambda times: second(times) - first(times))
        where = f"{len(pairs):,} items of {self.path.name}"
        if unread := len(pairs) - read:
            where += f", of which {unread:,} could not be read"
        refused = {
            item.name: other[2]
            for item, (_, other) in zip(new.items, pairs, strict=True)
            if other[0] is None
        }
        found = new.measure([other[0] for _, other in pairs], refused)
        return judge_change(next(iter(found.figures)), change, where, most_drop), found


@dataclass
class Judged:
    """One version's answers: what it cannot read, it has wrong."""

    truth: NDArray[np.int64]
    right: list[bool] = field(default_factory=list)
    read: int = 0
    why: str = ""

    def add(self, guess: One[Any]) -> None:
        labels, _, why = guess
        truth = self.truth[len(self.right)]
        self.right.append(labels[0].index == truth if labels else False)
        self.read += not why
        self.why = self.why or why


def judge_drop(drop: Drop, where: str, most_drop: float, losses: list[str]) -> Verdict:
    """`most_drop` in points."""
    allowed, sure = f"MAX_DROP={most_drop:g}", f"with {100 * CERTAINTY:g}% certainty"
    found = drop.judge(most_drop / 100)
    if found == "undecided":
        needed = drop.count_needed(most_drop / 100)
        more = f"about {needed:,} more would do" if needed else "no number of them would do"
        what = f"cannot tell whether it is within {allowed} after {where}; {more}"
        return Verdict(f"{what}; {drop}, {sure}", "")
    what = f"{drop}, {sure}, after {where}"
    if found == "worse":
        lost = f"; it lost {', '.join(losses)}" if losses else ""
        return Verdict(what, f"{what}, and {allowed} is the most{lost}")
    return Verdict(what, "")


def judge_change(name: str, change: Interval, where: str, most_drop: float) -> Verdict:
    points = (100 * each for each in (change.value, change.low, change.high))
    value, low, high = (f"{each:+.1f}" for each in points)
    what = f"{name} {value} points (95% certain: {low} to {high}), on {where}"
    if 100 * change.high < -most_drop:
        return Verdict(what, f"{what}, and MAX_DROP={most_drop:g} is the most")
    if 100 * change.low >= -most_drop:
        return Verdict(what, "")
    return Verdict(f"cannot tell whether it is within MAX_DROP={most_drop:g}: {what}", "")
