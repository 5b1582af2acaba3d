"""Brings what an earlier bundle left here up to this one, after git pull.

    make upgrade

Renamed settings are carried over in .env (which is kept as .env.before, if there is none yet).
Versions and their history stay. What no longer fits is listed, then built as a new version, and a
running server is started again with it and with every pipeline that it had; make rollback returns
to the one before. A second upgrade does nothing.
"""

from extensions.upkeep import upgrade
from scripts.base import console, lock
from scripts.recipes import pipelines
from scripts.server import loaded_beside, served, up
from scripts.settings.settings import SERVER, Settings, names
from scripts.stacks import flavour, state
from scripts.stacks.state import State


def main() -> None:
    upgrade.require_plain()
    with lock.one_at_a_time():
        changes = list(upgrade.rewrite_files())
        for change in changes:
            console.note(change)
        upgrade.write()
    version = served.serving(pipelines.main())
    if version is None:
        console.note("nothing has been served here yet; next: make up")
        return
    known = state.load()
    settings = as_it_runs(known)
    stack = flavour.stack(flavour.serving_or_chosen(settings, known)[0], settings)
    runs = stack.alive()
    if runs:
        with lock.one_at_a_time():
            stack.prepare()  # before the old one is asked whether it fits
    why = upgrade.explain_rebuild(stack, pipelines.main())
    if why:
        console.note(f"{version.title} does not fit any more ({why}); it is built anew beside it")
    loaded, again = loaded_beside.read_loaded() if runs else [], []
    for pipeline in pipelines.others():
        anew = bool(loaded) and pipeline.ensemble in loaded
        change = upgrade.explain_rebuild(stack, pipeline)
        if anew and served.serving(pipeline) is None:
            change = "an earlier bundle kept no version of it"
        if change:
            when = "it is built anew" if anew else f"built by the next {served.brings_up(pipeline)}"
            console.note(f"{pipeline.name}: {change}; {when}")
            again += [pipeline] * anew
    if runs and (why or upgrade.restart_if_needed(stack, settings)):
        console.note(f"the server is started again; until then, {version.title} serves")
        known = up.bring_up(settings)
    elif why:
        console.note("next: make up, which builds it")
    elif not changes and not again:
        console.note("nothing to upgrade")
    for pipeline in again if known else ():
        up.bring_up_beside(pipeline)


def as_it_runs(known: State | None) -> Settings:
    """With the addresses of the running server, which may have been given on its command line. Its
    memory follows from this bundle."""
    settings = Settings.load()
    if known is None:
        return settings
    of_server = {name: known.settings.get(name) for name in names(SERVER) if name != "MEMORY"}
    kept = {name: value for name, value in of_server.items() if value is not None}
    return settings.fill_from(kept).replace_with(FLAVOUR=settings.flavour or known.flavour)
