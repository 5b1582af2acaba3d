"""Puts the last published version in the place of the one that serves, while it serves.

    make rollout              proved on a server of its own, tried beside the old one, then switched
    make rollout VERSION=3    that one
    make rollout CANARY=10    before, ten in a hundred requests go to it for a while
    make rollout MODEL=birds  of a pipeline that was added

    make rollout ANYWAY=1     though it is untrained, or hardly says what the live version does

Errors, wrong answers or a p99 past MAX_P99_RATIO bring the old version back by themselves; so do
labels that agree with the live version's on fewer than MIN_AGREEMENT percent of the pictures.
"""

from __future__ import annotations

from scripts.base import console, lock
from scripts.recipes import pipelines
from scripts.repository import archive
from scripts.rollout import rollout
from scripts.settings import arguments


def main() -> int:
    asked = arguments.load()
    canary, wanted = asked.canary, asked.version
    with lock.one_at_a_time():
        up = rollout.found(pipelines.asked())
        serving = up.version.number
        target = int(wanted) if wanted else max(archive.numbers(up.version.pipeline))
        if target == serving:
            console.note(
                f"{up.version.describe()} is already live; make a new one with make publish"
            )
            return 0
        rollout.to(target, "rollout", up, canary, judge_labels=not asked.anyway)
    return 0
