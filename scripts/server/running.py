"""Finds the running server for a pipeline, or starts one."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from bundle_serving.health import reason_not_to_trust
from scripts.base import console
from scripts.settings.settings import SERVED, Settings, names
from scripts.stacks import state
from scripts.stacks.state import State

if TYPE_CHECKING:
    from scripts.recipes.pipelines import Pipeline


def ensure_server(settings: Settings | None = None) -> State:
    """The server that runs, as it runs: others use it too. Without one, starts it."""
    settings = settings or Settings.load()
    known = state.load()
    if known and not reason_not_to_trust(known.http, known.main):
        _note_differing(known, settings)
        return known
    # Slow to import, and seldom needed.
    from scripts.server.own_main import bring_up
    from scripts.server.up import find_restored

    with console.all_output_on_stderr():
        if known := find_restored():
            _note_differing(known, settings)
            return known
        last = state.load()
        return bring_up(settings.fill_from(last.settings) if last else settings, typed={})


def ensure_served(pipeline: Pipeline) -> State:
    """The server, with this pipeline loaded."""
    if pipeline.is_main:
        server = ensure_server()
        if server.main == pipeline.ensemble:
            return server
    from scripts.recipes.layout import CPU
    from scripts.server.served import serving
    from scripts.server.up import bring_up_beside
    from scripts.server.wanted_settings import settings_of, settings_of_server

    seed = serving(pipeline)
    known = state.load()
    if seed is None:  # refused before a server is started in vain
        settings = settings_of(pipeline, known.settings if known else {}, None)
        if export := pipeline.recipe.export(settings, CPU):
            export.spec.identity()
    server = ensure_server(settings_of_server(pipeline))
    if seed and not reason_not_to_trust(server.http, pipeline.ensemble):
        asked = settings_of(pipeline, server.settings, seed)
        changed = [name for name, value in seed.settings.items() if asked[name] != value]
        _note(changed, seed.settings, asked, pipeline.option)
        return server
    with console.all_output_on_stderr():
        return bring_up_beside(pipeline)


def as_it_runs(server: State) -> dict[str, str]:
    return server.settings | {Settings.flavour.name: server.flavour}


def list_differing(server: State, asked: Settings) -> list[str]:
    """What was set now of all that makes another server, and is not as it runs."""
    now = as_it_runs(server)
    set_now = [name for name in names(*SERVED) if name in asked.given]
    return [name for name in set_now if asked[name] != now.get(name, "")]


def _note_differing(server: State, asked: Settings) -> None:
    _note(list_differing(server, asked), as_it_runs(server), asked)


def _note(
    changed: Collection[str], now: Mapping[str, str], asked: Settings, options: str = ""
) -> None:
    if changed:
        with console.all_output_on_stderr():
            console.note(explain_unchanged(changed, now, asked.values, options))


def explain_unchanged(
    changed: Collection[str], now: Mapping[str, str], asked: Mapping[str, str], options: str = ""
) -> str:
    """What a command that only asks says in place of a restart."""
    runs, wanted = (
        " ".join(f"{name}={shlex.quote(values.get(name, ''))}" for name in changed)
        for values in (now, asked)
    )
    start = state.USUAL_START
    if not (options or Settings.flavour.name in changed):
        start = state.name_start()
    return f"asking the server as it runs, with {runs}; to change that: {start}{options} {wanted}"
