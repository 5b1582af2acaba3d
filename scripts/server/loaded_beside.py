"""Pipelines, and Triton models of the user's that belong to none, that are loaded besides the main
pipeline, and loaded again after a restart."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bundle_serving.health import reason_not_to_trust
from bundle_serving.process import keeper_notes
from scripts.artefacts.exporting import as_words
from scripts.artefacts.step import COMPLETE
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders, pipelines
from scripts.recipes.layout import CPU, Engine
from scripts.recipes.pipelines import Pipeline
from scripts.repository import archive, live, model_folders, place
from scripts.repository.archive import Version
from scripts.repository.shared import Shared
from scripts.server import layouts
from scripts.server.served import brings_up, serving
from scripts.server.triton.control import Control
from scripts.settings.settings import Settings
from scripts.stacks import admin_key, flavour
from scripts.stacks.state import State

# The most that reading, compiling and warming up a network takes.
LOAD_TIMEOUT_S = 120

COMPLETED = ROOT / "build" / "run" / "completed.json"
HEAD = "# Made from the model itself, since its folder has no config.pbtxt.\n"
# Where earlier bundles kept the names, and no backup had them.
EARLIER = ROOT / "build" / "run" / keeper_notes.BESIDE


def load(server: State, pipeline: Pipeline, changed: bool) -> None:
    """Loads its ensemble, and its models with it."""
    ensemble = pipeline.ensemble
    if changed or reason_not_to_trust(server.http, ensemble):
        with console.waiting(f"loading {ensemble}"):
            Shared(server.settings_at_start, pipeline).push_live()
            Control(server.admin, LOAD_TIMEOUT_S).load(ensemble)
        if reason := reason_not_to_trust(server.http, ensemble):
            raise UserError(f"{ensemble} does not answer: {reason}", "see make logs")
    remember(ensemble)


def wait_for(server: State, version: Version) -> None:
    """Whose folders are to go: a load that nobody waits for any more goes on."""
    Control(server.admin, LOAD_TIMEOUT_S).wait_for([version.pipeline.ensemble, *version.models])


def unload(pipeline: Pipeline, server: State | None) -> None:
    """Before its files go: removing those of a loaded model hangs its process."""
    recipe = pipeline.recipe
    if server and (many := flavour.many_of(server)):
        many.unload(server, recipe.ensemble)
    elif server:
        for model in (recipe.ensemble, *sorted(recipe.members)):
            Control(server.grpc, LOAD_TIMEOUT_S).unload(model)
    forget(recipe.ensemble)


def load_again(server: State, laid_out: Mapping[str, bool]) -> None:
    """Loads what the previous server had. A failure does not affect the main pipeline."""
    asked = {pipeline.ensemble: pipeline for pipeline in pipelines.others()}
    for model in read_loaded():
        if model not in folders.model_folders():  # the pipeline was removed
            forget(model)
            continue
        try:
            if model in asked:
                load(server, asked[model], laid_out.get(model, False))
            else:
                lay_out_own(model, server)
                Shared(server.settings_at_start, pipelines.main()).push(model)
                Control(server.grpc, LOAD_TIMEOUT_S).load(model)
        except UserError as fault:
            builds = f", or {brings_up(asked[model])}" if model in asked else ""
            told = f"{fault.cause}; {fault.remedy}{builds}"
            console.note(f"{model} could not be loaded again: {told}")


def read_remembered(and_others: bool = False) -> list[Version]:
    """The live versions of the pipelines that the last server had besides the main one."""
    noted, found = None if and_others else _read_noted(), []
    for each in pipelines.others() if noted != [] else []:
        with go_on_if_failing(f"{each.name} is left out"):
            wanted = noted is None or each.ensemble in noted
            if wanted and (version := serving(each)):
                found.append(version)
    return found


@contextmanager
def go_on_if_failing(told: str) -> Iterator[None]:
    """A failure does not affect the main pipeline."""
    try:
        yield
    except (UserError, OSError, KeyError) as fault:  # of what an earlier bundle has made
        why = f"{fault.cause}; {fault.remedy}" if isinstance(fault, UserError) else str(fault)
        console.note(f"{told}: {why}")


def lay_out(settings: Settings, engine: Engine, stuck: Container[str] = ()) -> dict[str, bool]:
    """The repository is not in a backup, and may be as an earlier bundle, other settings, another
    machine or a command that was killed had it. Elsewhere an upload would remove what is live and
    is not laid out. Returns the ensembles that are now, with whether that changed them; `stuck` are
    those that stay as they are."""
    laid_out = {}
    for pipeline in pipelines.others():
        Shared(settings, pipeline).pull()
    for version in read_remembered(and_others=place.find(settings) is not None):
        if version.pipeline.ensemble in stuck:
            continue
        before = layouts.hash_layout(version.pipeline)
        with go_on_if_failing(f"{version.title} cannot be laid out"):
            layouts.lay_out_alone(version, settings, engine)
            laid_out[version.pipeline.ensemble] = layouts.hash_layout(version.pipeline) != before
    _remember(read_loaded())
    return laid_out


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


def list_own() -> set[str]:
    """A pipeline's models come with its version."""
    of_pipelines = pipelines.members() | {each.ensemble for each in pipelines.every()}
    return folders.model_folders().keys() - of_pipelines


def lay_out_own(model: str, server: State) -> None:
    """Brings the repository up to date with the model's folder."""
    model_folders.furnish_with([model], live.REPOSITORY)
    folder = live.REPOSITORY / model
    stack = flavour.stack_of(server)
    engine = stack.engine
    require_its_code(folder, engine)
    has_config = (folders.model_folder(model) / "config.pbtxt").is_file()
    # NVIDIA's server completes configs by itself.
    if not has_config and engine is CPU:
        stack.run_step(COMPLETE, *as_words({"model": folder, "out": COMPLETED}))
        files.write(folder / "config.pbtxt", HEAD + _as_text(COMPLETED))
        COMPLETED.unlink()
    files.let_all_read(folder)


def _as_text(path: Path) -> str:
    from google.protobuf import json_format, text_format

    from bundle_serving.protocol.kserve import ModelConfig

    try:
        config = json_format.ParseDict(json.loads(path.read_text()), ModelConfig())
    except json_format.ParseError as fault:
        raise UserError(
            f"the config that the model says of itself is not valid ({fault})",
            "write its config.pbtxt",
        ) from None
    return text_format.MessageToString(config)


def require_its_code(model: Path, engine: Engine) -> None:
    """Without it, Triton hangs on the load and on every later call for that model."""
    if not _runs_python(model, engine):
        return
    for version in model.iterdir():
        if version.name.isdecimal() and not (version / "model.py").exists():
            raise UserError(
                f"there is no model.py in {model.name}/{version.name}",
                "add it, or remove the folder",
            )


def _runs_python(model: Path, engine: Engine) -> bool:
    if (model / "config.pbtxt").is_file():
        in_use = model_folders.config_in_use(model.parent, model.name, engine)
        return str(in_use.backend) == "python"
    return any(model.glob("[1-9]*/model.py"))
