"""Starts the server. With FROM= or LABELS=, its main pipeline is made of a network of the user's
own, and ImageNet's is not needed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from bundle_serving import NAME
from scripts.base import console, files
from scripts.base.errors import UserError
from scripts.base.paths import DOTENV
from scripts.recipes import folders, pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.repository import own_pipelines
from scripts.server import adding, agreeing, up
from scripts.server.served import serving
from scripts.settings import arguments
from scripts.settings.settings import Settings, in_dotenv
from scripts.stacks import flavour, state
from scripts.stacks.state import State

# One of these, and the network is the user's own.
OWN = ("FROM", "ONNX", "LABELS", "NAME")
WORDS = (*OWN, "ARCH", "WEIGHTS", "SIZE", "OUTPUT", "PICTURES")
# In networks/NAME: what the pipeline was made of, so that the same words mean it again.
GIVEN = "given.json"


def bring_up(
    settings: Settings, command: str = "up", typed: Mapping[str, str] = os.environ
) -> State:
    if not (given := _list_given(typed)):
        return up.bring_up(settings, command)
    name = given.get("NAME") or _make_name(given)
    own_pipelines.require_a_name(name)
    _require_one(name, settings, typed)
    if _is_made_of(name, given):
        pipelines.make_main(name)
        if "FROM" in given:  # into which its weights have gone
            settings = Settings(settings.values, settings.given - {"WEIGHTS"})
        return up.bring_up(settings, command)
    own_pipelines.require_unused(name)
    samples = agreeing.samples(arguments.load().sample)
    before = pipelines.main_name()
    try:
        pipeline = _take_in(name, given)
        with own_pipelines.write_pipeline(pipeline, pipeline.recipe.head.format(name=name)):
            files.write(folders.own().networks / name / GIVEN, json.dumps(given, indent=1) + "\n")
            pipelines.make_main(name)
            try:
                server = up.bring_up(Settings.load(), command)
                agreeing.require(pipeline, server)
                agreeing.require_shown(pipeline, server, samples)
            except BaseException:  # Ctrl-C too
                _go_back(pipeline, before)
                raise
    except BaseException:
        shutil.rmtree(folders.own().networks / name, ignore_errors=True)
        raise
    return server


def _list_given(typed: Mapping[str, str]) -> dict[str, str]:
    """What says something of the network, if it is the user's own."""
    written = {**in_dotenv(DOTENV), **typed}
    given = {word: text for word in WORDS if (text := written.get(word, "").strip())}
    return given if {*OWN} & given.keys() else {}


def _make_name(given: Mapping[str, str]) -> str:
    """From that of the file, folder or network."""
    words = ("FROM", "ONNX", "WEIGHTS", "ARCH", "LABELS")
    source = next(given[word] for word in words if word in given)
    name = re.sub("[^a-z0-9]+", "_", Path(source).stem.lower()).strip("_")
    if not re.fullmatch(NAME, name):
        raise UserError(f"{source} gives no name to a pipeline", "name it: NAME=birds")
    return name


def _require_one(name: str, settings: Settings, typed: Mapping[str, str]) -> None:
    """Not two networks, and not two main pipelines."""
    if settings.main and settings.main != name:
        raise UserError(
            f"MAIN={settings.main} names one main pipeline, and FROM= or LABELS= another, {name}",
            "omit one of them",
        )
    if arguments.load().model:
        raise UserError("MODEL= names a pipeline that is there, and FROM= a new one", "omit one")
    written = in_dotenv(DOTENV)
    if {"FROM", "ONNX"} & _list_given(typed).keys():
        for word in ("ARCH", "WEIGHTS"):
            if written.get(word) and not typed.get(word):
                raise UserError(f"{word} in .env already names a network", "remove it there")


def _is_made_of(name: str, given: Mapping[str, str]) -> bool:
    try:
        noted = json.loads((folders.own().networks / name / GIVEN).read_text())
    except (OSError, ValueError):
        return False
    return bool(noted == given and name in pipelines.recipes())


def _take_in(name: str, given: Mapping[str, str]) -> Pipeline:
    wanted = Pipeline(name, adding.recipe_of(name, given))
    own_pipelines.require_new(wanted)
    settings = up.fill_from_version(Settings.load(), wanted, None)
    chosen, _ = flavour.choose(settings)
    return adding.export_and_check(wanted, settings, flavour.stack(chosen, settings))


def _go_back(pipeline: Pipeline, before: str) -> None:
    """To what was served, if the new one was served already."""
    pipelines.make_main(before)
    known = state.load()
    if known is None or known.main != pipeline.ensemble:
        return
    if serving(pipelines.main()):
        console.note(f"{before} is served again")
        up.bring_up(known.settings_at_start.replace_with(FLAVOUR=known.flavour))
    else:
        flavour.stack(known.flavour, known.settings_at_start).stop()
        pipelines.NOTE.unlink(missing_ok=True)
