"""A switch that was cut off (by kill -9, or the machine) is undone by whoever comes next."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes.layout import Engine
from scripts.recipes.pipelines import Pipeline
from scripts.repository import history, live, model_folders
from scripts.repository.archive import Version
from scripts.server import engines
from scripts.server.control import Control
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.storage.shared import Shared


def restore(server: State | None, version: Version, shared: Shared) -> bool:
    """Says what it found. False where the server that is up cannot be put in order."""
    cut = history.cut_off(history.read(version.pipeline))
    if cut is None:
        return True
    console.note(
        f"the {cut.how} of version {cut.version} was interrupted; {version.named} stays live"
    )
    try:
        if server:
            limit = server.started_with.start_timeout
            engine = engines.of(flavour.stack(server.flavour, server.started_with))
            with lock.hands_off():
                mend(Control(server.admin, limit), engine, version, shared)
    except UserError as fault:
        console.note(f"the server cannot be recovered ({fault.cause})")
        return False
    shared.record(history.STAYED, cut.version, cut.how, history.CUT_OFF)
    return True


def mend(control: Control, engine: Engine, version: Version, shared: Shared) -> None:
    """After a switch that was cut off, wherever that was: this version alone, and nothing fixed."""
    # Were a folder removed while it is loaded, the model's process would end without a word, and
    # Triton would wait for it for ever.
    control.wait_for(version.models)
    live.place(version, live.REPOSITORY)
    live.leave_only(version)
    model_folders.write_labels(version.pipeline, version.workspace, engine, live.REPOSITORY)
    shared.push_live()
    as_committed(control, engine, [*version.models, version.pipeline.ensemble])
    with suppress(UserError):  # there may be none
        control.unload(candidate_of(version.pipeline))


def candidate_of(pipeline: Pipeline) -> str:
    return f"{pipeline.ensemble}_candidate"


def as_committed(control: Control, engine: Engine, models: Iterable[str]) -> None:
    """The configs are given, though they are those of the repository: a load without one does
    nothing where no file is newer than before, and leaves what was fixed as it is."""
    for model in models:
        control.load(model, model_folders.config_in_use(live.REPOSITORY, model, engine))
