"""The server that is up, or brought up for whoever asks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from bundle_serving.health import reason_not_to_trust
from bundle_serving.start_server import PIPELINE
from scripts.base import console
from scripts.base.console import all_output_on_stderr
from scripts.settings import settings
from scripts.settings.settings import NOT_SERVED, Settings
from scripts.stacks import state
from scripts.stacks.state import State


def running_server(wished: Settings | None = None) -> State:
    """The server that is up, if it is what is asked for; else it is brought up."""
    wished = wished or settings.load()
    known = state.load()
    warning = ""
    if known:
        asked = {name: wished[name] for name in sorted(wished.given - NOT_SERVED)}
        wished = wished.over(known.settings)
        now = {name: known.settings.get(name, "") for name in asked}
        if reason_not_to_trust(f"http://{known.http}", PIPELINE) is None:
            if asked == now:
                return known
            warning = restart(now, asked)
    from scripts.server.up import bring_up

    with all_output_on_stderr():
        if warning:
            console.note(warning)
        return bring_up(wished)


def restart(now: Mapping[str, str], asked: Mapping[str, str]) -> str:
    """Said before it is done: whoever wants an answer may not expect one that replaces what others
    are served."""
    changed = [name for name in asked if asked[name] != now[name]]
    before, after = (
        " ".join(f"{name}={shlex.quote(values[name])}" for name in changed)
        for values in (now, asked)
    )
    return f"this restarts the server with {after}; to go back: make up {before}"
