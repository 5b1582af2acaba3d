"""Saves what cannot be built again in one file: versions, their history, recipes, your own folder,
and .env.

    make backup TO=monday.tar
    PASSPHRASE=… make backup TO=monday.tar      the keys too, encrypted with it

Without a passphrase, keys are left out. Nothing is written where the backup does not verify.
"""

from collections.abc import Iterator
from pathlib import Path

from bundle_client import __version__
from extensions.upkeep import backup
from extensions.upkeep.arguments import load_passphrase
from extensions.upkeep.backup import Backup
from scripts.base import console, disk, lock
from scripts.base.errors import UserError
from scripts.recipes import pipelines
from scripts.repository import archive
from scripts.repository.shared import Shared
from scripts.settings import arguments
from scripts.stacks import state


def main() -> None:
    asked, passphrase = arguments.load(), load_passphrase()
    if not asked.to:
        raise UserError("no file given", "make backup TO=file")
    target = Path(asked.to)
    is_new_folder = not target.parent.exists()
    with lock.one_at_a_time():
        for pipeline in pipelines.every():
            Shared(state.settings_in_use(), pipeline).pull()
        if not archive.numbers(pipelines.main()):
            raise UserError("there are no versions to back up", "build one: make up")
        saved = backup.save(target, __version__, passphrase)
        damaged = list(find_damaged(saved))
    keys = "with its keys, encrypted" if saved.keys else "without keys (PASSPHRASE adds them)"
    size = disk.readable(target.stat().st_size)
    if damaged:
        console.note(
            f"saved as they are, but no longer what was published: {', '.join(damaged)}; an earlier"
            " backup may have them whole"
        )
    if links := backup.list_links():
        console.note(f"not in it, being links to other folders: {', '.join(links)}")
    if is_new_folder:
        console.note(f"there was no folder {target.parent}; it was made")
    console.note(f"saved and verified: {len(saved.index.files)} files, {size}, {keys}: {target}")


def find_damaged(saved: Backup) -> Iterator[str]:
    """Versions whose files, as they were saved, are not those of their records."""
    for pipeline in pipelines.every():
        for number in archive.numbers(pipeline):
            try:
                version = archive.load(pipeline, number)
            except UserError:
                yield f"{pipeline.mark} version {number}".strip()
                continue
            wanted = {f"{model}/{name}": each for model, has in version.hashes.items()
                      for name, each in has.items()}  # fmt: skip
            if backup.list_models(saved, version) != wanted:
                yield version.title
