"""Serves Python functions of your own, each as a pipeline: what a file binds, as with PyTriton.

    make add-callable NEW=mine.py      writes such a file, and its test
    make add-callable FILE=mine.py     serves what it binds

Then: make ask MODEL=mine INPUTS='{"text": "What a day!"}', and publish, rollout, rollback, history
and bench with MODEL=mine. What cannot be served is refused before anything is written.
"""

import json
import keyword
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bundle_serving import NAME
from kinds.callable.recipe import DESCRIBE, Function
from scripts.artefacts import packages
from scripts.base import console, files, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT, expand
from scripts.recipes import folders
from scripts.recipes.pipelines import Pipeline
from scripts.repository import own_pipelines
from scripts.server import ask, up
from scripts.server.running import ensure_server
from scripts.settings import arguments
from scripts.stacks import flavour
from scripts.stacks.state import State

TEMPLATE = ROOT / "kinds" / "callable" / "template"
FIRST = "mine"  # what the template calls its function
DESCRIBED = ROOT / "build" / "run" / "callables.json"
HEAD = "# A function: `make ask MODEL={name} INPUTS=…`.\n"


def main() -> None:
    asked = arguments.load()
    if asked.new:
        for path in write_new(asked.new):
            console.note(f"written: {path}")
        return
    if asked.file is None:
        raise UserError(
            "no FILE given", "give one, or begin with a new one: make add-callable NEW=mine.py"
        )
    pipelines, server = add_functions(asked.file)
    for pipeline in pipelines:
        console.note(f"{pipeline.name} answers its example:")
        pipeline.recipe.ask(ask.server_of(server), [], os.environ)


def write_new(name: str) -> list[Path]:
    """The template under this name, and its test beside it."""
    path = expand(name)
    is_one = re.fullmatch(NAME, path.stem) and path.stem.isidentifier()
    if not is_one or keyword.iskeyword(path.stem) or path.suffix != ".py":
        raise UserError(
            f"NEW={name} does not name a function",
            "use letters, digits and _: NEW=mine.py",
        )
    sources = [TEMPLATE / f"{begin}{FIRST}.py" for begin in ("", "test_")]
    targets = {source: path.with_name(source.name.replace(FIRST, path.stem)) for source in sources}
    if there := [target for target in targets.values() if target.exists()]:
        raise UserError(f"{there[0]} already exists", "choose another name, or remove it")
    for source, target in targets.items():
        content = source.read_text().replace(FIRST, path.stem)
        files.write(target, content.replace(FIRST.title(), path.stem.title().replace("_", "")))
    return list(targets.values())


def add_functions(file: Path) -> tuple[list[Pipeline], State]:
    """All that the file binds, or nothing."""
    if not file.is_file():
        raise UserError(f"there is no file {file}", "check FILE, or write one: NEW=mine.py")
    if file.suffix != ".py":
        raise UserError(f"{file} is no Python file", "name one that ends in .py: FILE=mine.py")
    server = ensure_server()
    wanted = [_pipeline(name, each, file) for name, each in _describe_file(file, server).items()]
    with lock.one_at_a_time(lock.OF_ADDITIONS), ExitStack() as undone:
        for pipeline in wanted:
            own_pipelines.require_unused(pipeline.name, "model_name")
            own_pipelines.require_new(pipeline)
        for pipeline in wanted:
            head = HEAD.format(name=pipeline.name)
            undone.enter_context(up.add_beside(pipeline, head))
    return wanted, server


def _describe_file(file: Path, server: State) -> dict[str, Any]:
    """What it binds, as the server's environment sees it."""
    stack = flavour.stack_of(server)
    # What it imports may take long.
    console.note(f"loading {file.name}, and asking what it binds for its examples …")
    with lock.one_at_a_time():
        stack.prepare()
        words: list[str | Path] = ["--file", file, "--out", DESCRIBED]
        if needed := packages.find_beside(file):
            words += ["--packages", packages.prepare(needed, stack.flavour)]
        stack.run_step(DESCRIBE, *words)
        try:  # before another command writes there
            described: dict[str, Any] = json.loads(DESCRIBED.read_text())
        finally:
            DESCRIBED.unlink()
    return described


def _pipeline(name: str, described: Mapping[str, Any], file: Path) -> Pipeline:
    folder = folders.own().recipes
    models = {"ensemble": name, "program": f"{name}_function"}
    source = os.path.relpath(file, folder)
    needed = packages.find_beside(file)
    content = {"kind": "callable", "models": models, "source": source, **described}
    content["requirements"] = os.path.relpath(needed, folder) if needed else ""
    return Pipeline(name, Function.model_validate(content))
