"""Lays out the main pipeline for a server that is started by somebody else: by Compose, or by its
container itself."""

from __future__ import annotations

from scripts.base import console
from scripts.recipes import pipelines
from scripts.repository import history
from scripts.repository.shared import Shared
from scripts.server import engines, layouts, loaded_beside, served, up
from scripts.server.recover import recover
from scripts.settings.settings import Settings
from scripts.stacks.stack import Stack


def lay_out(stack: Stack, settings: Settings, how: str) -> None:
    main = pipelines.main()
    shared = Shared(settings, main)
    seed = served.serving(main)
    if seed:
        recover(None, seed, shared)
    version = up.build_and_activate(stack, settings, main, seed, shared)
    loaded_beside.lay_out(layouts.layout(settings, engines.engine_for(stack)))
    up.note_main()
    if version == seed:
        console.note(f"{version.describe()}: nothing to lay out")
        return
    shared.record(history.SERVES, version.number, how, version.what)
    shared.trim(settings.keep_versions, how)
    console.note(f"laid out: {version.describe()}; a running server loads it when it restarts")
