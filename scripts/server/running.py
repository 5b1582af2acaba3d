"""The server that is up and answers for a pipeline, or brought up for whoever asks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bundle_serving.health import reason_not_to_trust
from bundle_serving.start_server import PIPELINE
from scripts.base.streams import all_output_on_stderr
from scripts.settings import settings
from scripts.settings.settings import SERVED, Settings, names
from scripts.stacks import state
from scripts.stacks.state import State

if TYPE_CHECKING:
    from scripts.recipes.pipelines import Pipeline


def running_server(wished: Settings | None = None) -> State:
    """The server that is up, if it is what is asked for; else it is brought up."""
    wished = wished or settings.load()
    known = state.load()
    warning = ""
    if known:
        asked = {name: wished[name] for name in names(*SERVED) if name in wished.given}
        wished = wished.over(known.settings)
        now = {name: known.settings.get(name, "") for name in asked}
        if answers(known, PIPELINE):
            if asked == now:
                return known
            warning = restart(now, asked)
    # Large, and seldom needed.
    from scripts.base import console
    from scripts.server.up import bring_up

    with all_output_on_stderr():
        if warning:
            console.note(warning)
        return bring_up(wished)


def running(pipeline: Pipeline) -> State:
    """The server, once it answers for this pipeline as it is asked for."""
    if pipeline.first:
        return running_server()
    from scripts.recipes.layout import CPU
    from scripts.server.served import serving
    from scripts.server.up import bring_up_beside, of_the_server, wished_of

    seed = serving(pipeline)
    known = state.load()
    if seed is None:  # what cannot be made is refused before a server is started for it
        wished = wished_of(pipeline, known.settings if known else {}, None)
        if export := pipeline.recipe.export(wished, CPU):
            export.spec.identity()
    server = running_server(of_the_server(pipeline))
    if seed:
        wished = wished_of(pipeline, server.settings, seed)
        same = all(wished[name] == seed.settings[name] for name in seed.settings)
        if same and answers(server, pipeline.ensemble):
            return server
    with all_output_on_stderr():
        return bring_up_beside(pipeline, server)


def answers(server: State, ensemble: str) -> bool:
    return reason_not_to_trust(server.http, ensemble) is None


def restart(now: Mapping[str, str], asked: Mapping[str, str]) -> str:
    """Said before it is done: whoever wants an answer may not expect one that replaces what others
    are served."""
    changed = [name for name in asked if asked[name] != now[name]]
    before, after = (
        " ".join(f"{name}={shlex.quote(values[name])}" for name in changed)
        for values in (now, asked)
    )
    return f"this restarts the server with {after}; to go back: make up {before}"
