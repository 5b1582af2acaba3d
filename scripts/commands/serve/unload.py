"""Unloads a model that no pipeline needs; with an ensemble, also the models that only it uses.

make unload TRITON_MODEL=another
"""

import time

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.repository import live
from scripts.server import loaded_beside
from scripts.server.triton import models
from scripts.server.triton.control import Control
from scripts.stacks import flavour, state
from scripts.stacks.state import State


def main() -> None:
    with lock.one_at_a_time():
        server = state.require()
        name = models.find_triton_model(server)
        many = flavour.many_of(server)
        if many and name != server.main and name in server.pipelines:
            many.unload(server, name)
            console.note(f"unloaded from each server: {name}")
            return
        server.require_one_server()
        if name in models.list_needed():
            raise UserError(
                f"{live.describe_network(name)} is needed by the main pipeline",
                f"to load it anew: make load TRITON_MODEL={name}; to stop serving: make down",
            )
        loaded_beside.forget(name)
        if not models.in_memory(server, name):
            console.note(f"{name} is not loaded")
            return
        members = models.only_of(name, models.list_loaded_steps(server))
        for model in (name, *members):
            _unload(server, model)
        console.note(f"unloaded: {', '.join((name, *members))}")


def _unload(server: State, model: str) -> None:
    with console.waiting(f"unloading {model}") as waiting:
        Control(server.admin, models.LONGEST_S).unload(model)
        while models.in_memory(server, model):
            if waiting.seconds > models.LONGEST_S:
                raise UserError(
                    f"{model} still answers requests", "make models shows when it is gone"
                )
            time.sleep(0.2)
