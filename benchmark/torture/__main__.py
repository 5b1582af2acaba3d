"""Harms a server in every way that was thought of, and sees whether it comes back.

    make torture            (QUICK=1: a shorter form)

On a server of its own, with the live version's models; what serves is left alone. Before it:
make up. Exit 1 where something did not come back or was answered as it should not be.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from benchmark.torture.bystanders import GRACE_S, Bystanders
from benchmark.torture.own_server import serve_own
from benchmark.torture.pictures import of_a_megabyte
from benchmark.torture.subject import Subject
from benchmark.torture.trials import Harmed, Progress, Trial, trials
from scripts import bootstrap
from scripts.base import console, tables
from scripts.base.errors import UserError, run_guarded
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.layout import GPU
from scripts.recipes.pictures import OfPictures
from scripts.recipes.pipelines import Pipeline
from scripts.repository import live
from scripts.server.served import find_served_version
from scripts.settings import arguments
from scripts.settings.known import require_known

LOG = ROOT / "build" / "run" / "torture.log"
SHORTER = 0.1

# Beyond it a server is not restored by itself.
RESTORED_S = 120
MEMORY_BACK_S = 60
REPEATS = 3
KEPT_BYTES = 100_000_000
# That bystanders may wait longer than usual while nothing of the server's own is taken away.
LONGER_S = 1.0
USUAL_S = 3
CLIENTS = 16


@dataclass(frozen=True)
class Row:
    name: str
    result: str
    fault: str
    asked: int
    failed: int
    failed_later: int
    longest: float
    memory: tuple[int, int, int]  # before, at most, after
    restored: float | None


def main() -> int:
    require_known()
    if not (live.REPOSITORY / pipelines.main().ensemble).is_dir():
        raise UserError("there is no version to serve", "make one: make up")
    require_pictures(pipelines.main())
    require_no_plan(pipelines.main())
    bootstrap.ensure("serve")
    scale = SHORTER if arguments.load().quick else 1.0
    rows: list[Row] = []
    with serve_own(LOG) as (subject, own):
        if own is None:
            console.note("the kernel does not allow mounts: no trials with a full disk or /dev/shm")
        if os.getuid():
            console.note("not root: no trial as another user")
        before = subject.expected_processes()
        usual = _usual(subject)
        of_texts = [each for each in pipelines.every() if each.recipe.asked_about == "TEXT"]
        texts = {
            each.ensemble: name for each in of_texts if (name := subject.find_input(each.ensemble))
        }
        for trial in trials(sorted(before), texts, own, scale):
            rows.append(_run_trial(subject, trial, before, usual))
            console.note(_line(rows[-1]))
            if rows[-1].restored is None:
                break
    _show(rows, usual)
    faults = [row for row in rows if row.fault]
    for row in faults:
        console.note(f"{row.name}: {row.fault}")
    if faults:
        raise UserError(f"{len(faults)} of {len(rows)} trials harmed the server", f"see {LOG}")
    return 0


def require_pictures(main: Pipeline) -> None:
    recipe = main.recipe
    if not isinstance(recipe, OfPictures) or recipe.asked_about != "IMG":
        raise UserError(
            f"make torture harms a server with image files, which {main.name} does not take",
            "choose another main pipeline: make up MAIN=…",
        )


def require_no_plan(main: Pipeline) -> None:
    if find_served_version(main).engine is GPU:
        raise UserError(
            "make torture harms a server on the processor, and what is live was made for a GPU",
            "harm the one that serves: .venv/bin/python -m benchmark.soak --harm",
        )


def _usual(subject: Subject) -> float:
    """The longest wait of bystanders while nothing is done; after a load as from many clients, for
    which the server's processes take memory that they keep."""
    with console.waiting("measuring the usual waits"):
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(subject.ask_picture, [of_a_megabyte()] * 10 * CLIENTS))
        with Bystanders(subject) as undisturbed:
            time.sleep(USUAL_S)
    return undisturbed.longest


def _run_trial(subject: Subject, trial: Trial, before: Mapping[str, int], usual: float) -> Row:
    fault, result, held = "", "", subject.memory()
    with console.waiting(trial.name) as waiting, Bystanders(subject) as bystanders:
        began = time.monotonic()
        try:
            result = trial.run(subject, _seldom(waiting.show))
        except Harmed as harmed:
            fault = str(harmed)
        restored = subject.until_whole(before, RESTORED_S)
    after = _until_back(subject, held) if restored is not None else 0
    later = bystanders.count_failed(since=began + GRACE_S)
    if restored is None:
        fault = fault or f"not restored within {RESTORED_S} s"
    elif after > held + KEPT_BYTES and _repeat(subject, trial, before, after) > KEPT_BYTES:
        fault = fault or f"each time, over {KEPT_BYTES / 1e6:.0f} MB of memory did not come back"
    elif not trial.takes_something and bystanders.count_failed():
        fault = fault or f"{bystanders.count_failed()} bystanders failed"
    elif not trial.takes_something and bystanders.longest > usual + LONGER_S:
        fault = fault or f"a bystander waited {bystanders.longest:.1f} s"
    memory = held, max(bystanders.peak, held), after
    asked, failed = len(bystanders.waits), bystanders.count_failed()
    return Row(
        trial.name, result, fault, asked, failed, later, bystanders.longest, memory, restored
    )


def _seldom(show: Progress) -> Progress:
    shown = 0.0

    def progress(text: str) -> None:
        nonlocal shown
        if time.monotonic() > shown + 0.2:
            shown = time.monotonic()
            show(text)

    return progress


def _until_back(subject: Subject, before: int) -> int:
    deadline = time.monotonic() + MEMORY_BACK_S
    while (held := subject.memory()) > before + KEPT_BYTES and time.monotonic() < deadline:
        time.sleep(0.5)
    return held


def _repeat(subject: Subject, trial: Trial, before: Mapping[str, int], held: int) -> int:
    """The least bytes that the same keeps beyond what it kept the time before. What processes take
    once, and have ready for the next time, is no leak: a flood's they have after three or four."""
    least = held
    for repeat in range(REPEATS):
        name = f"{trial.name}, again for its memory ({repeat + 1} of {REPEATS})"
        with console.waiting(name) as waiting, suppress(Harmed):
            trial.run(subject, _seldom(waiting.show))
        subject.until_whole(before, RESTORED_S)
        after = _until_back(subject, held)
        least, held = min(least, after - held), after
        if least <= KEPT_BYTES:
            break
    return least


def _line(row: Row) -> str:
    restored = "not restored" if row.restored is None else f"whole after {row.restored:.1f} s"
    return f"{row.name}: {row.fault or row.result}; {restored}"


def _show(rows: list[Row], usual: float) -> None:
    console.say(f"bystanders wait at most {1000 * usual:.0f} ms where nothing is done")
    head = (
        "asked",
        "failed",
        "later*",
        "longest",
        "MB before/peak/after",
        "whole",
        "what was done",
    )
    tables.show("rrrrrrl", head, map(_cells, rows))
    console.say(f"* of those who asked {GRACE_S} s after it began")


def _cells(row: Row) -> list[str]:
    return [
        *(str(count) for count in (row.asked, row.failed, row.failed_later)),
        f"{row.longest:.2f} s",
        "/".join(f"{held / 1e6:.0f}" for held in row.memory),
        "never" if row.restored is None else f"{row.restored:.1f} s",
        row.name,
    ]


if __name__ == "__main__":
    sys.exit(run_guarded(main))
