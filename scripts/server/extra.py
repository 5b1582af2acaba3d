"""A second pipeline beside that of pictures: made by a step of its own, loaded into the server that
runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from scripts.base import console, files
from scripts.base.errors import INTERRUPTED, AlreadyTold, UserError
from scripts.base.paths import PYTHON, ROOT
from scripts.recipes import pipelines, write
from scripts.recipes.image import ON_CPU, ON_GPU
from scripts.recipes.schema import Recipe
from scripts.repository import live, model_folders
from scripts.server import loading
from scripts.stacks.state import State
from scripts.storage.shared import Shared

# A network is read, compiled and warmed up in so long at most.
LOAD_TIMEOUT_S = 120

# The pipelines that were loaded into the last server, for the next one.
LOADED = ROOT / "build" / "run" / "beside.json"


def engine(server: State) -> str:
    """How the folders of its networks end."""
    return ON_GPU if server.flavour == "gpu" else ON_CPU


def precision(server: State) -> str:
    """That networks are exported in: a plan has that of its graph."""
    return "fp16" if server.flavour == "gpu" else "fp32"


def make(module: str, *arguments: str | Path) -> None:
    """In the project's environment, whatever the flavour: an export needs no GPU."""
    command: list[str | Path] = [PYTHON, "-m", module, *arguments]
    try:
        code = subprocess.run(command, cwd=ROOT).returncode
    except KeyboardInterrupt:  # the step got it too, and has said so
        code = INTERRUPTED
    if code:
        raise AlreadyTold(code)


def furnish(recipe: Recipe) -> bool:
    """Its models' configs and programs, into what the server reads; whether any changed."""
    models = {path.partition("/")[0] for path in write.made(recipe)}
    return model_folders.furnish_with(models, live.REPOSITORY)


def plan(server: State, made: Path, model: str, shapes: Mapping[str, str], pipeline: str) -> None:
    """On a GPU, of what an export made for a model; else there is nothing to do."""
    if server.flavour == "gpu":
        # What talks to Docker takes a third of a second to load.
        from scripts.server import plans

        plans.ensure(server, made, model, shapes, pipeline)


def load(server: State, pipeline: str, changed: bool) -> None:
    """The server starts with the pipeline of pictures alone. What an ensemble is made of comes with
    it."""
    url = f"http://{server.http}"
    if changed or reason_not_to_trust(url, pipeline):
        with console.waiting(f"loading {pipeline}"):
            Shared(server.started_with, pipelines.first()).push_live()
            loading.load(server.admin, pipeline, LOAD_TIMEOUT_S)
        if reason := reason_not_to_trust(url, pipeline):
            raise UserError(f"{pipeline} does not answer: {reason}", "see make logs")
    _remember({*_loaded(), pipeline})


def load_again(server: State) -> None:
    """What the server before this one had. The pipeline of pictures serves without it."""
    for pipeline in _loaded():
        if not (live.REPOSITORY / pipeline).is_dir():  # its recipe and its folders were removed
            forget(pipeline)
            continue
        try:
            load(server, pipeline, changed=False)
        except UserError as fault:
            console.note(f"{pipeline} is not loaded again: {fault.cause}; {fault.remedy}")


def forget(pipeline: str) -> None:
    _remember({*_loaded()} - {pipeline})


def _loaded() -> list[str]:
    try:
        loaded: list[str] = json.loads(LOADED.read_text())
        return loaded
    except (OSError, ValueError):
        return []


def _remember(loaded: Iterable[str]) -> None:
    files.write(LOADED, json.dumps(sorted(loaded)) + "\n")
