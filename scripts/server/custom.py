"""A pipeline that was added, brought into the server that is up: make up MODEL=birds.

What is said of a network behind such a command is said of that pipeline, not of the first.
"""

from __future__ import annotations

import os

from bundle_serving.health import reason_not_to_trust
from scripts.base import console, lock
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, history
from scripts.server import extra, up
from scripts.server.recover import restore
from scripts.server.running import running_server
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks import flavour
from scripts.stacks.state import State
from scripts.storage.shared import Shared


def running(pipeline: Pipeline) -> State:
    """The server, once it answers for this pipeline too, as it is asked for."""
    seed = up.serving(pipeline)
    server = running_server(of_the_first())
    wished = up.wished_of(pipeline, server, seed)
    asked = wished.given & set(archive.DECIDING)
    same = seed and all(wished[name] == seed.settings[name] for name in asked)
    if same and reason_not_to_trust(f"http://{server.http}", pipeline.ensemble) is None:
        return server
    return bring_up(pipeline)


def bring_up(pipeline: Pipeline) -> State:
    server = running_server(of_the_first())
    with lock.one_at_a_time():
        shared = Shared(server.started_with, pipeline)
        shared.pull()
        seed = up.serving(pipeline)
        if seed:
            restore(server, seed, shared)
        wished = up.wished_of(pipeline, server, seed)
        stack = flavour.stack(server.flavour, wished)
        stack.prepare()
        before = up.laid_out(pipeline)
        version = up.made_live(stack, wished, pipeline, seed, shared)
        extra.load(server, pipeline.ensemble, up.laid_out(pipeline) != before)
        if version != seed:
            shared.record(history.SERVES, version.number, "up", version.what)
        shared.push_history()
        console.note(f"up: {up.described(server, version)}")
    return server


def of_the_first() -> Settings:
    """What the command says to the server and its first pipeline."""
    said = {name: word for name, word in os.environ.items() if name not in up.OF_A_NETWORK}
    return settings.load(said)
