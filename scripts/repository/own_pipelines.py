"""Pipelines that the user adds: what they may be called, and their files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from bundle_serving import NAME
from scripts.base import files
from scripts.base.errors import UserError
from scripts.base.paths import ROOT
from scripts.recipes import folders, pipelines
from scripts.recipes.pipelines import Pipeline
from scripts.recipes.templates import write
from scripts.repository import archive, live


def require_a_name(name: str) -> None:
    if not re.fullmatch(NAME, name):
        problem = f"NAME={name} is not a valid name" if name else "no NAME given"
        raise UserError(problem, "use letters, digits, _ and -: make add-model NAME=birds")


def require_unused(name: str, word: str = "NAME") -> None:
    """Not even in other case: some file systems do not tell the two apart."""
    for there in pipelines.recipes():
        if there.casefold() == name.casefold():
            raise UserError(
                f"{there} already exists",
                f"for a new version of it, make publish MODEL={there}; or choose another {word}",
            )


def require_new(pipeline: Pipeline) -> None:
    """None of its names may exist: if adding it fails, all of its files are removed again."""
    names = {pipeline.name, pipeline.ensemble, *pipeline.recipe.members}
    wanted = {name.casefold() for name in names}
    there = folders.model_folders().keys() | pipelines.recipes().keys()
    if taken := sorted(name for name in there if name.casefold() in wanted):
        raise UserError(f"{taken[0]} already exists", "choose another NAME")
    if archive.numbers(pipeline):
        kept = archive.home(pipeline).relative_to(ROOT)
        raise UserError(
            f"versions of an earlier {pipeline.name} are in {kept}",
            "choose another NAME, or remove them",
        )


@contextmanager
def write_pipeline(pipeline: Pipeline, head: str) -> Iterator[None]:
    """Writes its recipe, with a head that says how it is asked, and its model folders; removes them
    again if what follows fails."""
    own = folders.own()
    keys = pipeline.recipe.model_dump(mode="json", exclude_none=True)
    content = yaml.safe_dump(keys, sort_keys=False, default_flow_style=None)
    try:
        write(pipeline.recipe, own.models)
        files.write(_recipe(pipeline), head + content)
        yield
    except BaseException:
        remove(pipeline)
        raise


def remove(pipeline: Pipeline) -> None:
    """All its files; what the server has loaded of it stays."""
    own, models = folders.own(), {pipeline.recipe.ensemble, *pipeline.recipe.members}
    there = folders.model_folders()
    written = [there[model] for model in models & there.keys()]
    pipelines.of_the_user().get(pipeline.name, _recipe(pipeline)).unlink(missing_ok=True)
    laid_out = [
        *(folder for folder in written if folder.is_relative_to(own.folder)),
        *(live.REPOSITORY / model for model in models),
    ]
    for folder in (*laid_out, archive.home(pipeline), own.networks / pipeline.name):
        shutil.rmtree(folder, ignore_errors=True)


def _recipe(pipeline: Pipeline) -> Path:
    return folders.own().recipes / f"{pipeline.name}.yaml"
