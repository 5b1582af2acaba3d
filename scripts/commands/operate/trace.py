"""Asks once and shows where the time went: client, wire, door, and each step.

    make trace IMG=mug.jpg [MODEL=birds]
    make trace TEXT="What a day!"       a pipeline of texts; likewise SOUND=, IN=, INPUTS=

The request carries a `traceparent`; its trace is in the door's log, too.
"""

import os
import secrets
from dataclasses import asdict
from functools import partial
from pathlib import Path

from scripts.base import console, tables
from scripts.base.errors import UserError
from scripts.base.text import printable
from scripts.measuring.one_request import STEP, ask_traced, list_rows
from scripts.recipes import pipelines
from scripts.recipes.asking import EXAMPLES, find_asked
from scripts.recipes.layout import GPU
from scripts.recipes.pipelines import Pipeline
from scripts.server.running import ensure_served


def main() -> None:
    pipeline = pipelines.find_asked_pipeline()
    recipe = pipeline.recipe
    asked = find_one(pipeline)
    server = ensure_served(pipeline)
    trace = secrets.token_hex(16)
    has_files = recipe.asked_about in EXAMPLES
    prepare = partial(recipe.read_question, asked)
    answer, found = ask_traced(server.http, pipeline.ensemble, prepare, has_files, trace)
    console.say(f"{asked[0] if asked else 'its example'}: {printable(answer)}")
    if console.Form.is_json:
        for span in found:
            console.write_json(asdict(span))
    else:
        tables.show("llrl", ("", "", "ms", ""), list_rows(found))
    silent = recipe.network_model(GPU) if server.flavour == "gpu" else None
    if silent and silent not in [each.name for each in found if each.where == STEP]:
        console.say(f"{silent} has no span: Triton computes it, between what does")
    console.say(f"trace {trace}; its line: make logs SINCE=1m | grep {trace[:8]}")


def find_one(pipeline: Pipeline) -> list[str]:
    """What to ask about; empty: an example."""
    setting = pipeline.recipe.asked_about
    if setting == "VIDEO":
        raise UserError(
            f"{pipeline.name} has a request for each frame, and make trace asks once",
            "trace a picture: make trace MODEL=… IMG=photo.jpg",
        )
    asked = find_asked(setting, f"trace{pipeline.option}", os.environ)
    if len(asked) > 1:
        raise UserError(f"{setting} names {len(asked)} files", "make trace takes only one")
    if setting in EXAMPLES and not Path(asked[0]).is_file():
        raise UserError(
            f"{asked[0]} is not a file",
            f"name one: make trace{pipeline.option} {EXAMPLES[setting][1]}",
        )
    pipeline.recipe.require_asked(asked, os.environ)
    return asked
