"""The last step of compose.yaml: makes a version of what the steps before it made, and lays it out
in the repository that the server reads. `make up` does the same between its steps and its server.

    python -m scripts.commands.layout
    python -m scripts.commands.layout candidate     on a GPU, for the gate to prove

Does nothing where what serves is what is asked for.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from scripts.base import console, files, lock
from scripts.base.errors import UserError, guarded
from scripts.recipes import pipelines
from scripts.repository import history, model_folders
from scripts.server import engines, up
from scripts.server.recover import restore
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks import ran_before
from scripts.steps.gate import ASKED, PASSED
from scripts.steps.workspace import Workspace
from scripts.storage.shared import Shared

MADE = Workspace(engines.CACHE)


def main() -> int:
    wished = settings.load()
    if wished["REPOSITORY"]:
        raise UserError("only make fills a repository on S3", "make up, or leave REPOSITORY empty")
    with lock.one_at_a_time():
        (lay_out_candidate if sys.argv[1:] == ["candidate"] else lay_out)(wished)
    return 0


def lay_out(wished: Settings) -> None:
    _note_what_passed(engines.CANDIDATE / PASSED)
    first = pipelines.first()
    shared = Shared(wished, first)
    seed = up.serving(first)
    if seed:
        restore(None, seed, shared)
    version = up.made_live(ran_before.of(wished), wished, first, seed, shared)
    if version == seed:
        console.note(f"{version.describe()}: nothing to lay out")
        return
    shared.record(history.SERVES, version.number, "compose", version.what)
    console.note(f"laid out: {version.describe()}; a server that is up loads it when it restarts")


def lay_out_candidate(wished: Settings) -> None:
    """Nothing where the plan has passed the gate."""
    shutil.rmtree(engines.CANDIDATE, ignore_errors=True)
    how = up.layout(wished, engines.of(ran_before.of(wished)), pipelines.first())
    asked = engines.asked_of_gate(MADE.plan, how)
    passed = MADE.plan / engines.GATE
    if passed.exists() and passed.read_text() == asked:
        console.note("the plan has passed the gate")
        return
    with files.whole_folder(engines.CANDIDATE) as draft:
        model_folders.lay_out(MADE, how, draft / "repository")
        files.write(draft / ASKED, asked)


def _note_what_passed(passed: Path) -> None:
    if passed.exists():
        files.write(MADE.plan / engines.GATE, passed.read_text())
    shutil.rmtree(passed.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(guarded(main))
