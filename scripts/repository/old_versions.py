"""Removes versions that nobody goes back to: KEEP_VERSIONS."""

from __future__ import annotations

import shutil

from scripts.base import console
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history
from scripts.repository.shared import Shared


def surplus(pipeline: Pipeline, keep: int) -> list[int]:
    """All but the newest, the live one, the one that a rollback returns to, and the last one that
    was published, which may be an earlier one again."""
    events = history.read(pipeline)
    published = [event.version for event in events if event.what == history.PUBLISHED]
    needed = {history.serving(events), history.find_previous(events), *published[-1:]}
    if cut := history.cut_off(events):
        needed.add(cut.version)
    return [number for number in archive.numbers(pipeline)[:-keep] if number not in needed]


def remove(shared: Shared, pipeline: Pipeline, numbers: list[int], how: str) -> None:
    """First from where it would come back."""
    for number in numbers:
        shared.forget_version(number)
        going = archive.home(pipeline) / f".{number}.old.tmp"
        shutil.rmtree(going, ignore_errors=True)
        (archive.home(pipeline) / str(number)).rename(going)  # nobody meets half a version
        shared.record(history.REMOVED, number, how)
        shutil.rmtree(going)


def trim(shared: Shared, pipeline: Pipeline, keep: int, how: str) -> None:
    """After a new version: leaves no more than are wanted."""
    if numbers := surplus(pipeline, keep):
        remove(shared, pipeline, numbers, how)
        console.note(f"removed {describe_versions(pipeline, numbers)} (KEEP_VERSIONS={keep})")


def describe_versions(pipeline: Pipeline, numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers))
    return f"{pipeline.mark} version{'s' * (len(numbers) > 1)} {shown}".strip()
