"""Judges a candidate by labelled data of a kind that has figures of its own: detectors and
segmentation."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle_serving.address import Address
from scripts.base.errors import UserError
from scripts.evaluation.labelled import Item
from scripts.evaluation.measured import Apart, Interval, Measured
from scripts.recipes.asking import Asked
from scripts.repository import evaluations
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.rollout.labelled import Contest, Verdict
from scripts.server import evaluating
from scripts.server.evaluating import One
from scripts.stacks.state import State


@dataclass(frozen=True)
class ContestOfFigures(Contest):
    """Such a figure is of all items together: there is no verdict before the last of them."""

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

        def ask_one(asked: Asked, item: Item) -> Any:
            return data.ask(asked.client, asked.model, item)

        return evaluating.ask_each(self.server, model, data.items, ask_one, only)

    def judge(
        self, live: Iterable[One[Any]], candidate: Iterable[One[Any]], most_drop: float
    ) -> tuple[Verdict, Measured]:
        old, new = self.known.values()
        pairs = [*zip(live, candidate, strict=True)]
        both = [one[0] is not None and other[0] is not None for one, other in pairs]
        if not (read := sum(both)):
            why = next(one[2] or other[2] for one, other in pairs)
            raise UserError(
                f"no item of {self.path.name} can be read by both versions ({why})",
                "name other labelled data, or do without: EVAL=none",
            )
        first, second = (
            data.compute_first(
                [pair[place][0] if known else None for pair, known in zip(pairs, both, strict=True)]
            )
            for place, data in enumerate((old, new))
        )
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

    def note(self, new: Version, right: Measured, shared: Shared) -> None:
        evaluations.remember(new.pipeline, self.path)
        evaluating.note_measured(new, shared, self.path, right, "rollout")


def judge_change(name: str, change: Interval, where: str, most_drop: float) -> Verdict:
    points = (100 * each for each in (change.value, change.low, change.high))
    value, low, high = (f"{each:+.1f}" for each in points)
    what = f"{name} {value} points (95% certain: {low} to {high}), on {where}"
    if 100 * change.high < -most_drop:
        return Verdict(what, f"{what}, and MAX_DROP={most_drop:g} is the most")
    if 100 * change.low >= -most_drop:
        return Verdict(what, "")
    return Verdict(f"cannot tell whether it is within MAX_DROP={most_drop:g}: {what}", "")
