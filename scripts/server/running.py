"""The server that is up, or brought up for whoever asks."""

from __future__ import annotations

from bundle_serving.health import reason_not_to_trust
from bundle_serving.start_server import PIPELINE
from scripts.base.console import all_output_on_stderr
from scripts.settings import settings
from scripts.settings.settings import NOT_SERVED, Settings
from scripts.stacks import state
from scripts.stacks.state import State


def running_server(wished: Settings | None = None) -> State:
    """The server that is up, if it is what is asked for; else it is brought up."""
    wished = wished or settings.load()
    known = state.load()
    if known:
        asked = wished.given - NOT_SERVED
        wished = wished.over(known.settings)
        same = all(wished[name] == known.settings.get(name) for name in asked)
        if same and reason_not_to_trust(f"http://{known.http}", PIPELINE) is None:
            return known
    from scripts.server.up import bring_up

    with all_output_on_stderr():
        return bring_up(wished)
