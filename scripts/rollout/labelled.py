"""Judges a candidate by labelled data: both versions answer the same items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scripts.base.errors import UserError
from scripts.evaluation.paired import Paired, list_losses
from scripts.evaluation.share import Share
from scripts.repository import evaluations
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import evaluating
from scripts.server.evaluating import Answered, Data
from scripts.stacks.state import State

NOT_PROVED = "not proved: how right it is on labelled data of yours (EVAL=folder, docs/eval.md)"
NOT_OF_ITS_KIND = "not proved: how right it is (compare make eval before and after)"


@dataclass(frozen=True)
class Verdict:
    what: str
    objection: str  # empty if there is none


@dataclass(frozen=True)
class Contest:
    """The same items, as either version knows their classes; `answered` are the live one's."""

    server: State
    path: Path
    old: Data
    new: Data

    @classmethod
    def prepare(cls, server: State, path: Path, old: Version, new: Version) -> Contest:
        """Whatever is wrong with the data is said before anything is touched."""
        return cls(server, path, *(evaluating.read_data(each, path) for each in (old, new)))

    def ask(self, version: Version, model: str, only: str = "") -> Answered:
        """The live one before the other is there: of a client's requests it might get a share.
        `only`: of many servers, this one."""
        return evaluating.ask_all(self.server, version, model, self.old.items, only)

    def judge(self, live: Answered, candidate: Answered, most_drop: float) -> Verdict:
        """What only one of them can read, the other has wrong; what neither can, says nothing."""
        read = live.is_read | candidate.is_read
        if not read.any():
            raise UserError(
                f"neither version can read anything of {self.path.name} ({live.refused[0]})",
                "name other labelled data, or do without: EVAL=none",
            )
        old = (live.first == self.old.truth)[read]
        new = (candidate.first == self.new.truth)[read]
        losses = list_losses(self.old.truth[read], old, new, self.old.classes)
        unread = int(np.count_nonzero(~read))
        return judge_pair(Paired.from_right(old, new), self.path.name, most_drop, losses, unread)

    def note(self, new: Version, candidate: Answered, shared: Shared) -> None:
        read = candidate.is_read
        right = Share(int((candidate.first == self.new.truth)[read].sum()), int(read.sum()))
        evaluations.remember(new.pipeline, self.path)
        evaluating.note(new, shared, self.path, right, "rollout")


def judge_pair(
    paired: Paired, data: str, most_drop: float, losses: list[str], unread: int
) -> Verdict:
    """`most_drop` in points."""
    what = f"on {paired.of:,} of {data}, candidate against live: {paired}"
    what += f"; {unread:,} could not be read" if unread else ""
    found, allowed = paired.judge(most_drop / 100), f"MAX_DROP={most_drop:g}"
    if found == "worse":
        lost = f"; it lost {', '.join(losses)}" if losses else ""
        return Verdict(what, f"{what}, and {allowed} is the most{lost}")
    if found == "undecided":
        needed = paired.count_needed(most_drop / 100)
        enough = f"about {needed:,} would do" if needed else "no number of them would do"
        return Verdict(f"{what}: too few to tell whether that is within {allowed}; {enough}", "")
    return Verdict(f"{what}: {'better' if found == 'better' else f'equal, within {allowed}'}", "")


def why_unproved(path: Path | None, new: Version) -> str:
    """Empty if labelled data can judge it."""
    if path is None:
        return NOT_PROVED
    made = new.workspace
    apart = made.onnx.is_dir() and new.pipeline.recipe.read_apart(path, made)
    return NOT_OF_ITS_KIND if apart else ""
