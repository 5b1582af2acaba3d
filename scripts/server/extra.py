"""What is loaded into the server beside the first pipeline, which it starts with; and into the next
server again."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bundle_serving.health import reason_not_to_trust
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import live
from scripts.server import loading
from scripts.stacks.state import State
from scripts.storage.shared import Shared

# A network is read, compiled and warmed up in so long at most.
LOAD_TIMEOUT_S = 120

# The pipelines' ensembles and the user's models that were loaded into the last server.
LOADED = ROOT / "build" / "run" / "beside.json"


def load(server: State, pipeline: str, changed: bool) -> None:
    """What an ensemble is made of comes with it."""
    if changed or reason_not_to_trust(server.http, pipeline):
        with console.waiting(f"loading {pipeline}"):
            Shared(server.started_with, pipelines.first()).push_live()
            loading.load(server.admin, pipeline, LOAD_TIMEOUT_S)
        if reason := reason_not_to_trust(server.http, pipeline):
            raise UserError(f"{pipeline} does not answer: {reason}", "see make logs")
    remember(pipeline)


def load_again(server: State) -> None:
    """What the server before this one had. The first pipeline serves without it."""
    asked = {pipeline.ensemble for pipeline in pipelines.others()}
    for model in _loaded():
        if not (live.REPOSITORY / model).is_dir():  # its recipe and its folders were removed
            forget(model)
            continue
        try:
            if model in asked:
                load(server, model, changed=False)
            else:
                loading.load(server.grpc, model, LOAD_TIMEOUT_S)
        except UserError as fault:
            console.note(f"{model} could not be loaded again: {fault.cause}; {fault.remedy}")


def remember(model: str) -> None:
    _remember({*_loaded(), model})


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
