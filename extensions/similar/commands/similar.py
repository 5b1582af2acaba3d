"""Prints the pictures that are most like a given one, best first: of all that `make index` has
indexed, or of a folder. Starts the embeddings service if it is not running.

    make similar IMG=photo.jpg                  TOP=5, and JSON=1 for one line of JSON per picture
    make similar IMG=photo.jpg IN=photos
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bundle_client import Client, ClientError, Embedding, Result, Source
from bundle_client.errors import CONCERNS_ALL
from bundle_client.show import as_json, print_error
from bundle_client.sources import files_in, name_of
from extensions.similar import service
from scripts import bootstrap
from scripts.base import console, files, lock, tables
from scripts.base.errors import UserError
from scripts.base.paths import expand
from scripts.recipes.asking import find_one_picture
from scripts.server import ask
from scripts.settings import arguments
from scripts.settings.arguments import Arguments
from scripts.settings.settings import Settings
from scripts.stacks.state import State


def main() -> int:
    asked = arguments.load()
    picture = find_one_picture(asked.img, "similar")
    found, failed = _in_folder(picture, asked) if asked.in_ else (_in_index(picture, asked), [])
    if asked.json:
        for each in found:
            print(json.dumps(each._asdict() | {"likeness": round(each.likeness, 6)}))
    else:
        tables.show("rl", (), map(make_row, found))
    for result in failed:
        print_error(result)
        if asked.json:
            print(as_json(result))
    return 1 if failed else 0


class Found(NamedTuple):
    likeness: float  # cosine similarity: 1 is the same picture
    source: str
    network: str


def make_row(each: Found) -> tuple[str, str]:
    mark = " (untrained weights)" if "(untrained)" in each.network else ""
    return f"{each.likeness:.4f}", f"{each.source}{mark}"


def _in_folder(picture: str, asked: Arguments) -> tuple[list[Found], list[Result]]:
    """And those that could not be compared."""
    folder = expand(asked.in_)
    if not folder.is_dir():
        raise UserError(
            f"IN={asked.in_} is not a folder",
            "give a folder of pictures: make similar IMG=photo.jpg IN=photos",
        )
    others = [each for each in files_in(folder) if not files.is_same(name_of(each), picture)]
    if not others:
        raise UserError(
            f"IN={asked.in_} contains no other pictures",
            "name a folder with .jpg, .png or the like in it",
        )
    with _client(_service()) as client:
        wanted = _embed_picture(client, picture)
        answers = list(_embed_others(client, others))
    found = [
        Found(float(wanted.vector @ each.vector), each.source, each.network)
        for each in answers
        if not each.error
    ]
    failed = [Result(each.source, error=each.error) for each in answers if each.error]
    return sorted(found, key=lambda each: -each.likeness)[: asked.top], failed


def _in_index(picture: str, asked: Arguments) -> list[Found]:
    bootstrap.ensure("index")
    from extensions.similar import indexing

    index = indexing.load_index()
    known = _service()
    indexing.require_fitting(index, known)
    with _client(known) as client:
        best = indexing.best(index, _embed_picture(client, picture), asked.top)
    return [Found(likeness, _shorten(path), index.made_by.network) for likeness, path in best]


def _shorten(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _service() -> State:
    with console.all_output_on_stderr(), lock.one_at_a_time():
        return service.ensure(Settings.load())


def _client(known: State) -> Client:
    return Client(**ask.read_known(service.where(known)), timeout=60)


def _embed_picture(client: Client, picture: str) -> Embedding:
    try:
        return client.embed(picture)
    except ClientError as fault:
        raise UserError(f"{picture}: {fault.cause}", fault.remedy) from None


def _embed_others(client: Client, others: list[Source]) -> Iterator[Embedding]:
    with (
        console.all_output_on_stderr(),
        console.waiting(f"comparing {len(others)} pictures") as waiting,
    ):
        for number, each in enumerate(client.embed_many(others), 1):
            if isinstance(each.error, CONCERNS_ALL):
                raise UserError(each.error.cause, each.error.remedy)
            waiting.show(f"{number} done")
            yield each
