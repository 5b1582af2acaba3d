"""Prints the pictures of a folder that are most like a given one, best first; starts the
embeddings service if it is not running.

    make similar IMG=photo.jpg IN=photos        TOP=5, and JSON=1 for one line of JSON per picture
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from bundle_client import Client, ClientError, Embedding, Result, Source
from bundle_client.errors import CONCERNS_ALL
from bundle_client.show import as_error, as_json
from bundle_client.sources import name_of, pictures_in
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.streams import all_output_on_stderr
from scripts.base.text import printable
from scripts.server import ask, embeddings
from scripts.settings import arguments, pictures
from scripts.settings.arguments import Arguments
from scripts.settings.settings import Settings

NAME_WIDTH = 60


def main() -> int:
    asked = arguments.load()
    picture, folder = _asked(asked)
    others = [each for each in pictures_in(folder) if not _same(each, picture)]
    if not others:
        raise UserError(
            f"IN={folder} contains no other pictures",
            "name a folder with .jpg, .png or the like in it",
        )
    with all_output_on_stderr():
        with lock.one_at_a_time():
            known = embeddings.ensure(Settings.load())
        with Client(**ask.known(embeddings.where(known)), timeout=60) as client:
            try:
                wanted = client.embed(picture)
            except ClientError as fault:
                raise UserError(f"{picture}: {fault.cause}", fault.remedy) from None
            found = list(_compared(client, others))
    as_a_line = as_json_line if asked.json else for_people
    for likeness, each in best_first(wanted, found)[: asked.top]:
        print(as_a_line(likeness, each))
    failed = [Result(each.source, error=each.error) for each in found if each.error]
    for result in failed:
        print(as_error(result), file=sys.stderr)
        if asked.json:
            print(as_json(result))
    return 1 if failed else 0


def best_first(wanted: Embedding, found: list[Embedding]) -> list[tuple[float, Embedding]]:
    """Each with its cosine similarity: 1 is the same picture."""
    compared = [(float(wanted.vector @ each.vector), each) for each in found if not each.error]
    return sorted(compared, key=lambda pair: -pair[0])


def for_people(likeness: float, each: Embedding) -> str:
    mark = "  (untrained weights)" if "(untrained)" in each.network else ""
    return f"{likeness:.4f}  {printable(each.source):<{NAME_WIDTH}}{mark}".rstrip()


def as_json_line(likeness: float, each: Embedding) -> str:
    fields = {"source": each.source, "likeness": round(likeness, 6), "network": each.network}
    return json.dumps(fields)


def _asked(asked: Arguments) -> tuple[str, Path]:
    picture = pictures.one(asked.img, "similar")
    folder = Path(asked.in_ or "nowhere").expanduser()
    if not folder.is_dir():
        raise UserError(
            f"IN={asked.in_} is not a folder",
            "give a folder of pictures: make similar IMG=photo.jpg IN=photos",
        )
    return picture, folder


def _same(each: Source, picture: str) -> bool:
    return Path(picture).exists() and Path(name_of(each)).samefile(picture)


def _compared(client: Client, others: list[Source]) -> Iterator[Embedding]:
    with console.waiting(f"comparing {len(others)} pictures") as waiting:
        for number, each in enumerate(client.embed_many(others), 1):
            if isinstance(each.error, CONCERNS_ALL):
                raise UserError(each.error.cause, each.error.remedy)
            waiting.show(f"{number} done")
            yield each
