"""Loads a model of model_repository, or reloads one that has changed.

    make load TRITON_MODEL=resnet50_onnx

The live version keeps serving until the new one is ready, and stays if that fails to load.
"""

from scripts.base import console, lock
from scripts.recipes import pipelines
from scripts.repository import live, place
from scripts.repository.shared import Shared
from scripts.server import loaded_beside
from scripts.server.triton import models
from scripts.server.triton.control import Control
from scripts.settings import arguments
from scripts.stacks import flavour, state


def main() -> None:
    with lock.one_at_a_time():
        server = state.require()
        server.require_one_server()
        own = (named := arguments.load().triton_model) in loaded_beside.list_own()
        if own:
            loaded_beside.lay_out_own(named, server)
            Shared(server.settings_at_start, pipelines.main()).push(named)
        elif elsewhere := place.find(server.settings_at_start):
            elsewhere.require_reachable()  # else Triton itself looks for it, and long
        name = models.find_triton_model(server)
        if not own and (live.REPOSITORY / name).is_dir():
            stack = flavour.stack_of(server)
            loaded_beside.require_its_code(live.REPOSITORY / name, stack.engine)
        with console.waiting(f"loading {name}"):
            Control(server.admin, models.LONGEST_S).load(name)
        if own or name in {pipeline.ensemble for pipeline in pipelines.others()}:
            loaded_beside.remember(name)
        for model in models.in_memory(server, name):
            if model.state == "READY":
                console.note(
                    f"loaded: {live.describe_network(name, model.version)}, version {model.version}"
                )
