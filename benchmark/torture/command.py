"""Harms a server in every way that was thought of, and sees whether it comes back.

    make torture            (QUICK=1: a shorter form)

On a server of its own, with the live version's models; what serves is left alone. Before it:
make up. Exit 1 where something did not come back or was answered as it should not be.
"""

import os

from benchmark.torture.bystanders import GRACE_S
from benchmark.torture.judging import Row, judge, measure_usual
from benchmark.torture.own_server import serve_own
from scripts import bootstrap
from scripts.base import console, tables
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.recipes.layout import GPU
from scripts.recipes.pictures import OfPictures
from scripts.recipes.pipelines import Pipeline
from scripts.repository import live
from scripts.server.served import find_served_version
from scripts.settings import arguments

LOG = ROOT / "build" / "run" / "torture.log"
SHORTER = 0.1


def main() -> int:
    if not (live.REPOSITORY / pipelines.main().ensemble).is_dir():
        raise UserError("there is no version to serve", "make one: make up")
    require_pictures(pipelines.main())
    require_no_plan(pipelines.main())
    bootstrap.ensure("serve")
    scale = SHORTER if arguments.load().quick else 1.0
    with serve_own(LOG) as (subject, own):
        if own is None:
            console.note("the kernel does not allow mounts: no trials with a full disk or /dev/shm")
        if os.getuid():
            console.note("not root: no trial as another user")
        usual = measure_usual(subject)
        rows = [*judge(subject, own, scale, usual)]
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
