"""Removes a pipeline that was added: its recipe, its model folders and its versions.

    make remove-model NAME=birds

The project's own pipelines cannot be removed. Without NAME it lists those that can.
"""

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import own_pipelines
from scripts.repository.shared import Shared
from scripts.server import loaded_beside
from scripts.settings import arguments
from scripts.stacks import state


def main() -> int:
    name, there = arguments.load().name, pipelines.of_the_user()
    if name not in there:
        raise UserError(
            f"NAME={name} is not a pipeline of yours" if name else "no NAME given",
            f"yours: {', '.join(sorted(there)) or 'none'}",
        )
    pipeline = pipelines.find_pipeline(name)
    if pipeline.is_main and state.load():
        raise UserError(
            f"{name} is the main pipeline of the server",
            "make another one that first (make up MAIN=resnet50), or make down",
        )
    with lock.one_at_a_time():
        remove(pipeline)
    console.note(f"removed: {name}")
    return 0


def remove(pipeline: Pipeline) -> None:
    server = state.load()
    loaded_beside.unload(pipeline, server)
    own_pipelines.remove(pipeline)
    if pipelines.find_noted() == pipeline.name:
        pipelines.forget_main()
    shared = Shared(state.settings_in_use(), pipeline)
    shared.push_live()
    shared.forget()
