"""Adds the pictures of a folder, new or changed, to the index that `make similar` asks; starts the
embeddings service if it is not running. What was indexed of other folders stays.

    make index IN=photos        YES=1 takes out the pictures that are gone
"""

from bundle_client import Client, Result
from bundle_client.show import print_error
from extensions.similar import indexing, service
from extensions.similar.indexing import Growth
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.paths import expand
from scripts.server import ask
from scripts.settings import arguments
from scripts.settings.settings import Settings

# Of the pictures that are gone.
NAMED = 5


def main() -> int:
    asked = arguments.load()
    if not asked.in_:
        raise UserError("no folder given", "try: make index IN=photos")
    folder = expand(asked.in_).resolve()
    if not folder.is_dir():
        raise UserError(f"IN={asked.in_} is not a folder", "give a folder of pictures")
    with lock.one_at_a_time(indexing.LOCK):
        with lock.one_at_a_time():
            known = service.ensure(Settings.load())
        growth = Growth.start(folder, indexing.describe_maker(known))
        if not (growth.changed or growth.unchanged or growth.gone):
            raise UserError(
                f"IN={asked.in_} contains no pictures",
                "name a folder with .jpg, .png or the like in it",
            )
        if growth.replaces:
            console.note(f"another network than {growth.replaces.network}: building the index anew")
        with Client(**ask.read_known(service.where(known)), timeout=60) as client:
            failed = embed(growth, client)
        settle_gone(growth, asked.yes)
        growth.index.save(indexing.PATH)
    done = len(growth.changed) - failed
    console.note(
        f"{done} new or changed, {growth.unchanged} as they were; {len(growth.index)} indexed"
    )
    return 1 if failed else 0


def embed(growth: Growth, client: Client) -> int:
    """Returns how many are left out."""
    failed = []
    with console.waiting(f"embedding {len(growth.changed)} pictures") as waiting:
        for number, each in enumerate(growth.embed_all(client), 1):
            waiting.show(f"{number} done")
            if each.error:
                failed.append(Result(each.source, error=each.error))
    for result in failed:
        print_error(result)
    return len(failed)


def settle_gone(growth: Growth, agreed: bool) -> None:
    if not growth.gone:
        return
    if agreed or growth.replaces:
        growth.index.remove(growth.gone)
        console.note(f"taken out, being gone: {name_paths(growth.gone)}")
    else:
        console.note(f"gone: {name_paths(growth.gone)}; YES=1 takes them out of the index")


def name_paths(paths: list[str]) -> str:
    more = len(paths) - NAMED
    return ", ".join(paths[:NAMED]) + (f" and {more} more" if more > 0 else "")
