"""The last build step of compose.yaml: turns what the earlier steps built into a version and lays
it out in the repository that the server reads. `make up` does the same itself.

    python -m scripts.commands.layout
    python -m scripts.commands.layout candidate     on a GPU, for the gate to check

Does nothing if the live version already is what is requested.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial

from scripts.artefacts.workspace import Workspace
from scripts.base import console, lock
from scripts.base.errors import run_guarded
from scripts.recipes import pipelines
from scripts.recipes.layout import Layout
from scripts.repository import model_folders
from scripts.server import engines, layouts, served, up
from scripts.settings.settings import Settings
from scripts.stacks import ran_before
from scripts.stacks.stack import Stack


def main() -> int:
    settings = Settings.load()
    if settings.from_ and settings.flavour != "gpu":  # the first step has laid it out
        return 0
    up.require_here(settings)
    if settings.from_:
        settings = up.fill_from_version(
            settings, pipelines.main(), served.serving(pipelines.main())
        )
    stack = ran_before.steps_of(settings)
    how = layouts.layout(settings, engines.engine_for(stack))
    with lock.one_at_a_time():
        if sys.argv[1:] == ["candidate"]:
            lay_out_candidate(stack, how)
        else:
            judge_candidate(how)
            up.lay_out_main(stack, settings, "compose")
    return 0


def lay_out_candidate(stack: Stack, how: Layout) -> None:
    """Does nothing if the plan has passed the gate already."""
    shutil.rmtree(engines.CANDIDATE, ignore_errors=True)
    first = pipelines.main()
    engines.write_gate_words(stack, how, first, find_workspace())
    if engines.has_passed(find_workspace(), how):
        console.note("the plan has passed the gate")
        return
    lay_out = partial(model_folders.lay_out, first, find_workspace(), how)
    engines.lay_out_candidate(how, first, find_workspace(), lay_out)


def judge_candidate(how: Layout) -> None:
    """Judges the whole candidate by the gate's answers; the gate compared only the network."""
    if (engines.CANDIDATE / "answers.npz").exists():
        engines.judge_candidate(how, pipelines.main(), find_workspace())
        engines.note_passed(find_workspace(), how)
    shutil.rmtree(engines.CANDIDATE, ignore_errors=True)


def find_workspace() -> Workspace:
    """Where the earlier steps left their results."""
    return Workspace(engines.CACHE / pipelines.main().ensemble)


if __name__ == "__main__":
    sys.exit(run_guarded(main))
