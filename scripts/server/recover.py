"""Undoes a switch, or a `make up`, that was interrupted, by kill -9 or a power failure say."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes.layout import Engine
from scripts.recipes.pipelines import Pipeline
from scripts.repository import history, live, model_folders
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import layouts
from scripts.server.served import name_cut_off, serving
from scripts.server.triton.control import Control
from scripts.settings.settings import Settings
from scripts.stacks import flavour, state
from scripts.stacks.state import State


def find_recovered(pipeline: Pipeline) -> tuple[State, Shared, Version | None]:
    """The running server, the pipeline's versions, and the live one of them."""
    server = state.require()  # another command may have changed it until now
    flavour.stack_of(server).end_strays(server)
    shared = Shared(server.settings_at_start, pipeline)
    shared.pull()
    seed = serving(pipeline)
    if seed:
        recover(server, seed, shared)
        server = state.require()
    return server, shared, seed


def recover(server: State | None, version: Version, shared: Shared) -> bool:
    """Reports what it found. False if the running server cannot be recovered."""
    cut = history.cut_off(history.read(version.pipeline))
    if cut is None:
        return True
    what = name_cut_off(version.pipeline, cut)
    console.note(f"{what} was interrupted; {version.title} stays live")
    try:
        if server:
            settings = server.settings_at_start.fill_from(version.settings)
            stack = flavour.stack_of(server)
            if stack.many:
                layouts.lay_out_alone(version, settings, stack.engine)
                if server.pipelines.get(version.pipeline.ensemble) == version.number:
                    stack.many.go_back(server)
                else:  # the other one had come to its end, and was not recorded
                    stack.many.load(server, version)
            else:
                with lock.hands_off():
                    control = Control(server.admin, settings.start_timeout)
                    _recover(control, stack.engine, settings, version, shared)
                found = layouts.fingerprint(stack, server.settings_at_start, server.pipelines)
                if found != server.fingerprint:  # of the other one, which `make up` is not to meet
                    replace(server, fingerprint="").save()
    except UserError as fault:
        console.note(f"the server cannot be recovered ({fault.cause})")
        return False
    shared.record(history.STAYED, cut.version, cut.how, history.CUT_OFF)
    return True


def _recover(
    control: Control, engine: Engine, settings: Settings, version: Version, shared: Shared
) -> None:
    """From any point of a switch: this version alone, and nothing pinned."""
    # Else `lay_out` writes them, and nobody knows which have changed.
    alike = model_folders.write_labels(version.pipeline, version.workspace, engine, live.REPOSITORY)
    # Some may be gone already, and a server that has ended starts again with them alone.
    layouts.lay_out(version, layouts.layout(settings, engine), live.REPOSITORY)
    shared.push_live(*alike)
    # If a folder were removed while it is loading, the model's process would end silently, and
    # Triton would wait for it forever.
    control.wait_for(version.models)
    serve_alone(control, engine, version, shared, [*version.models, *alike])


def serve_alone(
    control: Control, engine: Engine, version: Version, shared: Shared, models: Iterable[str]
) -> None:
    """Loads these of its models anew, without the other version, and unpins them. The repository's
    own configs are passed explicitly: a load without a config does nothing if no file is newer, and
    would keep the steps pinned."""
    alike = leave_only(version, engine)
    shared.push_live(*alike)
    with suppress(UserError):  # there may be no candidate
        control.unload(version.pipeline.candidate)
    ensemble, read = version.pipeline.ensemble, model_folders.config_in_use
    loaded = control.in_use(read(live.REPOSITORY, ensemble, engine), [*models, *alike])
    for model in (*loaded, ensemble):
        control.load(model, read(live.REPOSITORY, model, engine))


def leave_only(version: Version, engine: Engine) -> list[str]:
    """Returns the other ensembles whose labels changed with its own."""
    live.leave_only(version)
    made = version.workspace
    return model_folders.write_labels(version.pipeline, made, engine, live.REPOSITORY)
