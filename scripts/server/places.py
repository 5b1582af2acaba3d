"""Says what kind of place pictures show; brings the server up if it is not.

    make classify MODEL=places IMG=photo.jpg        JSON=1 for one line of JSON a picture

The network is exported and laid out when it does not fit yet, and loaded into the server that runs.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from bundle_client import Client, ClientError, Result, Source, SourceError
from bundle_client.settings import MAX_BYTES, TIMEOUT_S
from bundle_client.show import as_error, as_json, as_table
from bundle_client.sources import expand, name_of, named, read
from scripts import bootstrap
from scripts.base import console, lock
from scripts.base.paths import ROOT
from scripts.recipes.places import shapes
from scripts.recipes.schema import Array, load_as
from scripts.repository import live
from scripts.repository.places import lay_out
from scripts.server import extra
from scripts.settings import settings
from scripts.settings.settings import Settings
from scripts.stacks.state import State
from scripts.steps.manifest import why_export
from scripts.steps.places import RECIPE, UNTRAINED, Wanted

MADE = ROOT / "build" / "places"


def ask(pictures: list[str]) -> int:
    from scripts.base.console import all_output_on_stderr
    from scripts.server.running import running_server

    recipe = load_as(RECIPE, Array)
    weights = _weights(settings.load())
    Wanted(recipe.source, weights).identity()  # refused before a server is started for it
    with all_output_on_stderr():
        server = running_server()
        with lock.one_at_a_time():
            changed = prepare(server, weights, recipe)
        extra.load(server, recipe.models.ensemble, changed)
    failed = 0
    with Client(server.http) as client:
        for source in expand(pictures):
            result = answer(client, source)
            failed += result.error is not None
            show(result)
    return 1 if failed else 0


def answer(client: Client, source: Source) -> Result:
    try:
        with named(source):
            pixels = decoded(read(source, MAX_BYTES, TIMEOUT_S))
            began = time.perf_counter()
            found = client.place(pixels)
    except ClientError as fault:
        return Result(name_of(source), error=fault)
    return Result(name_of(source), found, (time.perf_counter() - began) * 1e3)


def decoded(file: bytes) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(file)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    except OSError:
        raise SourceError("no picture that can be read here", "give another") from None


def show(result: Result) -> None:
    if result.error:
        print(as_error(result), file=sys.stderr)
    else:
        print(as_json(result) if os.environ.get("JSON") else as_table(result, console.out))


def _weights(wished: Settings) -> str:
    said = wished["PLACES"]
    return said if said in ("", UNTRAINED) else str(Path(said).expanduser().resolve())


def prepare(server: State, weights: str, recipe: Array) -> bool:
    """Exports and lays out what does not fit yet; whether there was such."""
    precision = extra.precision(server)
    reason = why_export(MADE, Wanted(recipe.source, weights, precision))
    if reason:
        console.note(f"places: {reason}")
        bootstrap.ensure("export")
        words = ("--weights", weights, "--precision", precision, "--out", MADE)
        extra.make("scripts.steps.places", *words)
    furnished = extra.furnish(recipe)
    models = recipe.models
    extra.plan(server, MADE, models.network, shapes(recipe), models.ensemble)
    return lay_out(MADE, recipe, live.REPOSITORY, extra.engine(server)) or furnished
