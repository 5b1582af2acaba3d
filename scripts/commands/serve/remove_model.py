"""Removes a pipeline that was added: its recipe, its model folders and its versions.

    make remove-model NAME=birds

The project's own pipelines cannot be removed. Without NAME it lists those that can.
"""

from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import history, own_pipelines
from scripts.repository.shared import Shared
from scripts.server import loaded_beside
from scripts.settings import arguments
from scripts.stacks import state


def main() -> None:
    name = arguments.load().name
    require_there(name)
    # Another command may be adding it, removing it, or making it the main one.
    with lock.one_at_a_time(lock.OF_ADDITIONS), lock.one_at_a_time():
        require_there(name)
        remove(pipelines.find_pipeline(name))
    console.note(f"removed: {name}")


def require_there(name: str) -> None:
    if name not in (there := pipelines.of_the_user()):
        raise UserError(
            f"NAME={name} is not a pipeline of yours" if name else "no NAME given",
            f"yours: {', '.join(sorted(there)) or 'none'}",
        )


def remove(pipeline: Pipeline) -> None:
    server, name = state.load(), pipeline.name
    if pipeline.is_main and server:
        raise UserError(
            f"{name} is the main pipeline of the server",
            f"make another one that first ({state.name_start()} MAIN=resnet50), or make down",
        )
    loaded_beside.unload(pipeline, server)
    shared = Shared(state.settings_in_use(), pipeline)
    shared.forget()  # first where another one of this name would find it
    own_pipelines.remove(pipeline)
    history.show(pipeline)
    if pipelines.find_noted() == name:
        pipelines.forget_main()
    shared.push_live()
