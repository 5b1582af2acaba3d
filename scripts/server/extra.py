"""Pipelines and models that are loaded besides the main pipeline, and loaded again after a
restart."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bundle_serving.health import reason_not_to_trust
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import pipelines
from scripts.repository import live
from scripts.repository.archive import Version
from scripts.server import loading, own_models
from scripts.server.served import serving
from scripts.stacks.state import State
from scripts.storage.shared import Shared

# The most that reading, compiling and warming up a network takes.
LOAD_TIMEOUT_S = 120

# The ensembles and the user's models that were loaded into the last server.
LOADED = ROOT / "build" / "run" / "beside.json"


def load(server: State, pipeline: str, changed: bool) -> None:
    """Loads an ensemble, and its models with it."""
    if changed or reason_not_to_trust(server.http, pipeline):
        with console.waiting(f"loading {pipeline}"):
            Shared(server.started_with, pipelines.first()).push_live()
            loading.load(server.admin, pipeline, LOAD_TIMEOUT_S)
        if reason := reason_not_to_trust(server.http, pipeline):
            raise UserError(f"{pipeline} does not answer: {reason}", "see make logs")
    remember(pipeline)


def load_again(server: State) -> None:
    """Loads what the previous server had. A failure does not affect the main pipeline."""
    asked = {pipeline.ensemble for pipeline in pipelines.others()}
    for model in _loaded():
        if not (live.REPOSITORY / model).is_dir():  # the pipeline was removed
            forget(model)
            continue
        try:
            if model in asked:
                load(server, model, changed=False)
            else:
                own_models.lay_out(model, server)
                Shared(server.started_with, pipelines.first()).push_live()
                loading.load(server.grpc, model, LOAD_TIMEOUT_S)
        except UserError as fault:
            console.note(f"{model} could not be loaded again: {fault.cause}; {fault.remedy}")


def remembered() -> list[Version]:
    """The live versions of the pipelines that the last server had besides the main one."""
    loaded = _loaded()
    found = [serving(each) for each in pipelines.others() if loaded and each.ensemble in loaded]
    return [version for version in found if version]


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
