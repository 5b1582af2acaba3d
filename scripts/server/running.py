"""Finds the running server for a pipeline, or starts one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bundle_serving import PIPELINE
from bundle_serving.health import reason_not_to_trust
from scripts.base.streams import all_output_on_stderr
from scripts.settings.settings import SERVED, Settings, names
from scripts.stacks import state
from scripts.stacks.state import State

if TYPE_CHECKING:
    from scripts.recipes.pipelines import Pipeline


def running_server(settings: Settings | None = None) -> State:
    """The running server if it matches the request; otherwise starts it."""
    settings = settings or Settings.load()
    known = state.load()
    warning = ""
    if known:
        asked = {name: settings[name] for name in names(*SERVED) if name in settings.given}
        settings = settings.over(known.settings)
        now = {name: known.settings.get(name, "") for name in asked}
        if answers(known, PIPELINE):
            if asked == now:
                return known
            warning = restart(now, asked)
    # Slow to import, and seldom needed.
    from scripts.base import console
    from scripts.server.up import bring_up

    with all_output_on_stderr():
        if warning:
            console.note(warning)
        return bring_up(settings)


def running(pipeline: Pipeline) -> State:
    """The server, with this pipeline loaded as requested."""
    if pipeline.first:
        return running_server()
    from scripts.recipes.layout import CPU
    from scripts.server.served import serving
    from scripts.server.up import bring_up_beside, of_the_server, settings_of

    seed = serving(pipeline)
    known = state.load()
    if seed is None:  # refused before a server is started in vain
        settings = settings_of(pipeline, known.settings if known else {}, None)
        if export := pipeline.recipe.export(settings, CPU):
            export.spec.identity()
    server = running_server(of_the_server(pipeline))
    if seed:
        settings = settings_of(pipeline, server.settings, seed)
        same = all(settings[name] == seed.settings[name] for name in seed.settings)
        if same and answers(server, pipeline.ensemble):
            return server
    with all_output_on_stderr():
        return bring_up_beside(pipeline, server)


def answers(server: State, ensemble: str) -> bool:
    return reason_not_to_trust(server.http, ensemble) is None


def restart(now: Mapping[str, str], asked: Mapping[str, str]) -> str:
    """Reports it first: somebody who only wants an answer may not expect to replace the server that
    others use."""
    changed = [name for name in asked if asked[name] != now[name]]
    before, after = (
        " ".join(f"{name}={shlex.quote(values[name])}" for name in changed)
        for values in (now, asked)
    )
    return f"this restarts the server with {after}; to go back: make up {before}"
