"""Serves Python functions of your own, each as a pipeline: what a file binds, as with PyTriton.

    make add-callable NEW=mine.py      writes such a file, and its test
    make add-callable FILE=mine.py     serves what it binds

Then: make ask MODEL=mine INPUTS='{"text": "What a day!"}', and publish, rollout, rollback, history
and bench with MODEL=mine. What cannot be served is refused before anything is written.
"""

from __future__ import annotations

import os

from kinds.callable import functions
from scripts.base import console
from scripts.base.errors import UserError
from scripts.server import ask
from scripts.settings import arguments


def main() -> int:
    asked = arguments.load()
    if asked.new:
        for path in functions.write_new(asked.new):
            console.note(f"written: {path}")
        return 0
    if asked.file is None:
        raise UserError(
            "no FILE given", "give one, or begin with a new one: make add-callable NEW=mine.py"
        )
    pipelines, server = functions.add_functions(asked.file)
    for pipeline in pipelines:
        console.note(f"{pipeline.name} answers its example:")
        pipeline.recipe.ask(ask.server_of(server), [], os.environ)
    return 0
