"""Pipelines and models that are loaded besides the main pipeline, and loaded again after a
restart."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import Layout
from scripts.repository import archive, live
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import layouts, own_models
from scripts.server.served import serving
from scripts.server.triton import loading
from scripts.stacks import admin_key
from scripts.stacks.state import State

# The most that reading, compiling and warming up a network takes.
LOAD_TIMEOUT_S = 120

# Where earlier bundles kept the names, and no backup had them.
EARLIER = ROOT / "build" / "run" / keeper_notes.BESIDE


def load(server: State, pipeline: str, changed: bool) -> None:
    """Loads an ensemble, and its models with it."""
    if changed or reason_not_to_trust(server.http, pipeline):
        with console.waiting(f"loading {pipeline}"):
            Shared(server.settings_at_start, pipelines.main()).push_live()
            loading.load(server.admin, pipeline, LOAD_TIMEOUT_S)
        if reason := reason_not_to_trust(server.http, pipeline):
            raise UserError(f"{pipeline} does not answer: {reason}", "see make logs")
    remember(pipeline)


def load_again(server: State) -> None:
    """Loads what the previous server had. A failure does not affect the main pipeline."""
    asked = {pipeline.ensemble for pipeline in pipelines.others()}
    for model in read_loaded():
        if model not in folders.model_folders():  # the pipeline was removed
            forget(model)
            continue
        try:
            if model in asked:
                load(server, model, changed=False)
            else:
                own_models.lay_out(model, server)
                Shared(server.settings_at_start, pipelines.main()).push_live()
                loading.load(server.grpc, model, LOAD_TIMEOUT_S)
        except UserError as fault:
            console.note(f"{model} could not be loaded again: {fault.cause}; {fault.remedy}")


def read_remembered() -> list[Version]:
    """The live versions of the pipelines that the last server had besides the main one."""
    noted, found = _read_noted(), []
    for each in pipelines.others() if noted != [] else []:
        try:
            wanted = noted is None or each.ensemble in noted
            if wanted and (version := serving(each)):
                found.append(version)
        except UserError as fault:
            console.note(f"{each.name} is left out: {fault.cause}; {fault.remedy}")
    return found


def lay_out(how: Layout) -> None:
    """Those whose folders are not in the repository, which is not in a backup. A failure does not
    affect the main pipeline."""
    for version in read_remembered():
        placed = (live.REPOSITORY / model / str(at) for model, at in version.models.items())
        try:
            if not all(folder.is_dir() for folder in placed):
                layouts.lay_out(version, how, live.REPOSITORY)
        except UserError as fault:
            console.note(f"{version.title} is left out: {fault.cause}; {fault.remedy}")
    _remember(read_loaded())


def remember(model: str) -> None:
    _remember({*read_loaded(), model})


def forget(pipeline: str) -> None:
    _remember({*read_loaded()} - {pipeline})


def read_loaded() -> list[str]:
    """The ensembles and models that the last server had: without a note, all that is live."""
    noted = _read_noted()
    return [each.pipeline.ensemble for each in read_remembered()] if noted is None else noted


def _read_noted() -> list[str] | None:
    """Without what has become the main pipeline since."""
    noted = keeper_notes.read_loaded_beside(archive.HERE)
    if noted is None and (noted := keeper_notes.read_loaded_beside(EARLIER.parent)) is None:
        return None
    main = pipelines.main().ensemble
    return [each for each in noted if each != main]


def _remember(loaded: Iterable[str]) -> None:
    """In backups; and for the keeper, which sees no other folder, after a restart of its own."""
    text = json.dumps(sorted(loaded)) + "\n"
    for folder in (archive.HERE, admin_key.PATH.parent):
        files.write(folder / keeper_notes.BESIDE, text)
    EARLIER.unlink(missing_ok=True)
