"""Says how a text is meant; brings the server up if it is not.

    make sentiment TEXT="What a day!"        JSON=1 for one line of JSON

The classifier is exported and laid out when it does not fit yet, and loaded into the server that
runs.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from bundle_client import Client, Sentiment
from scripts import bootstrap
from scripts.base import console, lock
from scripts.base.console import all_output_on_stderr
from scripts.base.errors import UserError, guarded
from scripts.base.paths import ROOT
from scripts.base.text import printable
from scripts.recipes.schema import Text, load_as
from scripts.recipes.text import shapes
from scripts.repository import live
from scripts.repository.texts import lay_out
from scripts.server import extra
from scripts.server.running import running_server
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks.state import State
from scripts.steps.manifest import why_export
from scripts.steps.texts.export import RECIPE, Wanted
from scripts.steps.texts.sources import MINILM

MADE = ROOT / "build" / "sentiment"


def main() -> int:
    text = os.environ.get("TEXT", "")
    if not text:
        raise UserError("no text given", 'write one: make sentiment TEXT="What a day!"')
    wished = settings.load()
    recipe = load_as(RECIPE, Text)
    with all_output_on_stderr():
        server = running_server()
        with lock.one_at_a_time():
            changed = prepare(server, wished, recipe)
        extra.load(server, recipe.models.ensemble, changed)
    with Client(server.http) as client:
        (judged,) = client.sentiment(text, model=recipe.models.ensemble)
    print(json.dumps(asdict(judged)) if os.environ.get("JSON") else for_people(judged))
    return 0


def for_people(judged: Sentiment) -> str:
    return f"{printable(judged.label)}  {judged.score:.2%}"


def prepare(server: State, wished: Settings, recipe: Text) -> bool:
    """Exports and lays out what does not fit yet; whether there was such."""
    source, precision = _source(wished["SENTIMENT"]) or recipe.source, extra.precision(server)
    reason = why_export(MADE, Wanted(source, recipe.words.max_seq_len, precision))
    if reason:
        console.note(f"sentiment: {reason}")
        bootstrap.ensure("sentiment")
        if source == MINILM:
            bootstrap.ensure("minilm")
        words = ("--source", source, "--precision", precision, "--out", MADE)
        extra.make("scripts.steps.texts.export", *words)
    furnished = extra.furnish(recipe)
    engine, models = extra.engine(server), recipe.models
    extra.plan(server, MADE, f"{models.network}_{engine}", shapes(recipe), models.ensemble)
    return lay_out(MADE, recipe, live.REPOSITORY, engine) or furnished


def _source(said: str) -> str:
    path = Path(said).expanduser()
    return str(path.resolve()) if said and path.is_dir() else said


if __name__ == "__main__":
    sys.exit(guarded(main))
