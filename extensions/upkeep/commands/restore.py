"""Puts a backup in the place of what is here, after every byte of it was checked.

    make restore FROM=monday.tar
    PASSPHRASE=… make restore FROM=monday.tar     its keys too

Next: make up. Versions and other keys that are here already are replaced only with YES=1.
"""

from collections.abc import Mapping
from pathlib import Path

from extensions.upkeep import backup, sealed
from extensions.upkeep.arguments import load_passphrase
from extensions.upkeep.backup import Backup
from scripts.base import console, lock
from scripts.base.errors import UserError
from scripts.base.paths import ROOT, expand
from scripts.recipes import pipelines
from scripts.repository import archive, layout_number
from scripts.settings import arguments
from scripts.stacks import flavour, state


def main() -> None:
    asked, passphrase = arguments.load(), load_passphrase()
    if not asked.from_:
        raise UserError("no file given", "make restore FROM=file")
    with lock.one_at_a_time():
        found = backup.verify_backup(expand(asked.from_))
        layout_number.require_known(found.index.layout, "the versions in it")
        keys = sealed.open_sealed(found.keys, passphrase) if found.keys and passphrase else {}
        require_nothing_is_lost(found, keys, asked.yes)
        kept = backup.restore(found)
        sealed.unseal(keys)
    count, made = len(found.index.files), found.index.made
    console.note(f"restored: {count} files of {made}, each verified; next: make up")
    if kept:
        console.note(f"this checkout's own files stay: {', '.join(kept)}")
    if passphrase and not found.keys:
        console.note("it has no keys for PASSPHRASE to open: make up creates what is missing")
    if found.keys and not passphrase:
        console.note("its keys stay in it (PASSPHRASE restores them); make up creates new ones")


def require_nothing_is_lost(found: Backup, keys: Mapping[Path, str], agreed: bool) -> None:
    known = state.load()
    if known and flavour.stack_of(known).alive():
        raise UserError("the server is running", "stop it first: make down")
    if agreed:
        return
    there = [f"{backup.OWN}/{name}" for name in backup.list_changed_own(found)]
    if any(archive.numbers(pipeline) for pipeline in pipelines.every()):
        there.append("versions")
    # Who has a key would be shut out, and whose was revoked be let in again.
    changed = (path for path, text in keys.items() if path.exists() and path.read_text() != text)
    there += [str(path.relative_to(ROOT)) for path in changed]
    if there:
        raise UserError(
            f"the backup would replace what is here: {', '.join(there)}",
            "make restore FROM=… YES=1, or restore in another checkout",
        )
