"""A backup: one tar file with what cannot be built again.

    backup.json             what it is, and the hash of each file
    backup.json.sha256      the hash of that
    keys                    the keys, encrypted; only with a passphrase
    contents/SHA256 …       the files, each content once

That is versions and their history, recipes and model folders, the user's own folder, and .env.
"""

import glob
import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from dotenv import dotenv_values

from extensions.upkeep import sealed
from scripts.base import disk, files
from scripts.base.errors import UserError, refuse_place
from scripts.base.paths import DOTENV, ROOT, expand
from scripts.recipes import folders
from scripts.repository import archive, layout_number
from scripts.settings import dotenv_file
from scripts.settings.settings import Settings

INDEX, SUM, KEYS, CONTENTS = "backup.json", "backup.json.sha256", "keys", "contents/"
VERSIONS, OWN, SETTINGS = "versions", "own", ".env"
OF_THE_CHECKOUT = ("recipes", "kinds", "model_repository")

# Versions come into a folder where nothing is yet.
NEW = ROOT / "build" / ".restored"


@dataclass(frozen=True)
class Index:
    bundle: str
    made: str
    layout: int
    files: dict[str, str]  # by name, the hash


@dataclass(frozen=True)
class Backup:
    """A verified one."""

    path: Path
    index: Index
    keys: bytes | None


def places() -> dict[str, Path]:
    """Each name at the top of a backup, and where that is here."""
    checkout = {name: ROOT / name for name in OF_THE_CHECKOUT}
    return {VERSIONS: archive.HERE, OWN: folders.own().folder, SETTINGS: DOTENV} | checkout


def save(target: Path, bundle: str, passphrase: str) -> Backup:
    """Writes all of it or nothing; for its owner alone, since .env may contain secrets. It may
    take the place of an earlier one, and of nothing else."""
    _require_replaceable(target)
    found = {name: path for top, place in places().items() for name, path in _files(top, place)}
    if why := files.why_not_below(NEW, *found):
        raise UserError(f"{why}, and cannot be in a backup", "rename it")
    hashes = {name: files.sha256(path) for name, path in found.items()}
    made = datetime.now(UTC).isoformat(timespec="seconds")
    index = json.dumps(asdict(Index(bundle, made, layout_number.here(), hashes)), indent=1)
    contents = {CONTENTS + hashes[name]: path for name, path in found.items()}
    draft = _begin(target)
    try:
        room_mb = disk.measure_occupied(contents.values()) >> 20
        disk.require_room(target.parent, room_mb, "the backup")
        with tarfile.open(draft, "w") as tar:
            small = {INDEX: index.encode()}
            small[SUM] = hashlib.sha256(small[INDEX]).hexdigest().encode()
            if passphrase:
                small[KEYS] = sealed.seal(passphrase)
            for name, content in small.items():
                _add(tar, name, io.BytesIO(content), len(content))
            for name, path in sorted(contents.items()):
                with path.open("rb") as file:
                    _add(tar, name, file, path.stat().st_size)
        saved = verify_backup(draft)
        files.sync(draft)
        draft.replace(target)
        files.sync(target.parent)
    finally:
        draft.unlink(missing_ok=True)
    return Backup(target, saved.index, saved.keys)


def _require_replaceable(target: Path) -> None:
    if any(target.resolve().is_relative_to(place) for place in places().values()):
        raise UserError(
            f"{target} would be in the next backup, too", "name a file elsewhere: TO=bundle.tar"
        )
    if not os.path.lexists(target):
        return
    if target.is_file():
        with suppress(OSError, tarfile.TarError), tarfile.open(target) as tar:
            if (first := tar.next()) and first.name == INDEX:
                return
    raise UserError(f"{target} exists, and is no backup", "name another file: TO=bundle.tar")


def _begin(target: Path) -> Path:
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        files.remove_drafts(target)
        draft.touch(0o600)
    except OSError as fault:
        raise refuse_place(target, fault) from None
    return draft


def _files(top: str, place: Path) -> Iterator[tuple[str, Path]]:
    if place.is_file():
        yield top, place
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place)
        passing = {".draft", ".git", "__pycache__"} & {*name.parts} or path.suffix == ".tmp"
        if path.is_file() and not passing and _is_edited(top, name):
            yield f"{top}/{name}", path


def list_links() -> list[str]:
    """To folders, which lie elsewhere: what is in them is in no backup."""
    linked = (path for place in places().values() for path in place.rglob("*"))
    return sorted(str(path) for path in linked if path.is_symlink() and path.is_dir())


def _is_edited(top: str, name: Path) -> bool:
    """Of kinds/ what users may have edited; all else there is the bundle's code."""
    return top != "kinds" or name.suffix == ".yaml" or "model_repository" in name.parts


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size = size
    tar.addfile(member, content)


def verify_backup(path: Path) -> Backup:
    """Reads every byte of it."""
    try:
        with tarfile.open(path, "r:") as tar:
            text, digest = (_open_member(tar, tar.next()).read() for _ in range(2))
            if hashlib.sha256(text).hexdigest().encode() != digest:
                raise _explain_damage(path, "its index is not what was written")
            index = _index(text)
            missing = _contents(index)
            keys = None
            for member in tar:
                if member.name in (INDEX, SUM):
                    continue
                content = _open_member(tar, member)
                if member.name == KEYS:
                    keys = content.read()
                elif CONTENTS + hashlib.file_digest(content, "sha256").hexdigest() != member.name:
                    raise _explain_damage(path, "the content of a file is not what was written")
                missing.discard(member.name)
    except (tarfile.TarError, EOFError, ValueError, TypeError):
        raise _explain_damage(path, "it is no backup, or not all of one") from None
    except (FileNotFoundError, IsADirectoryError):
        raise UserError(f"there is no backup at {path}", "make restore FROM=file") from None
    if missing:
        raise _explain_damage(path, f"{len(missing)} of its files are missing")
    if why := files.why_not_below(NEW, *index.files):
        raise _explain_damage(path, f"{why}, which no backup contains")
    for name in index.files:
        top, _, rest = name.partition("/")
        if top not in places() or bool(rest) == (top == SETTINGS):
            raise _explain_damage(path, f"it contains {name}, which no backup does")
    return Backup(path, index, keys)


def _index(text: bytes) -> Index:
    index = Index(**json.loads(text))
    if not isinstance(index.files, dict) or not isinstance(index.layout, int):
        raise ValueError
    return index


def _contents(index: Index) -> set[str]:
    return {f"{CONTENTS}{each}" for each in index.files.values()}


def _open_member(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> BufferedReader:
    file = tar.extractfile(member) if member and member.isreg() else None
    if file is None:
        raise ValueError
    return cast(BufferedReader, file)


def _explain_damage(path: Path, why: str) -> UserError:
    return UserError(f"{path} is damaged: {why}", "use another copy; nothing has been changed here")


def list_changed_own(backup: Backup) -> list[str]:
    """The user's own files that differ in it."""
    own = _own(backup)
    return [
        name
        for name, content in _part(OWN, backup).items()
        if (own / name).is_file() and files.sha256(own / name) != content
    ]


def list_models(backup: Backup, version: archive.Version) -> dict[str, str]:
    """The files of a version's models in it, and their hashes."""
    return _part(f"{VERSIONS}/{version.folder.relative_to(archive.HERE)}/models", backup)


def _part(top: str, backup: Backup) -> dict[str, str]:
    found = backup.index.files.items()
    return {
        name.removeprefix(f"{top}/"): each for name, each in found if name.startswith(f"{top}/")
    }


def restore(backup: Backup) -> list[str]:
    """Puts it in the place of what is here. The checkout's own recipes and model folders stay:
    returns those that differ in the backup."""
    build = archive.HERE.parent
    build.mkdir(exist_ok=True)
    disk.require_room(build, _measure_restored(backup) >> 20, "restoring")
    own, text = _own(backup), _settings(backup)
    for top, place in {OWN: own, **{top: ROOT / top for top in OF_THE_CHECKOUT}}.items():
        if why := files.why_not_below(place, *_part(top, backup)):
            raise UserError(
                f"in {place}, {why}", "move away what is there; nothing has been changed here"
            )
    kept = set()
    # Of a name by which `make prune` takes what a kill leaves.
    unpacked = TemporaryDirectory(prefix=".restored.", suffix=".tmp", dir=build)
    with unpacked as temporary, files.whole_folder(archive.HERE) as versions:
        contents = Path(temporary)
        _unpack(backup, contents)
        for name, content in _part(VERSIONS, backup).items():
            files.link(contents / content, versions / name)
        # What users edit shares nothing: who writes into such a file would change a version's.
        for name, content in _part(OWN, backup).items():
            files.copy(contents / content, own / name)
        for top in OF_THE_CHECKOUT:
            for name, content in _part(top, backup).items():
                if not _is_edited(top, Path(name)):
                    continue
                target = _home(top, name)
                if not target.exists():
                    files.copy(contents / content, target)
                elif files.sha256(target) != content:
                    kept.add(str(target.relative_to(ROOT)))
        if text:
            _restore_settings(text)
    return sorted(kept)


def _measure_restored(backup: Backup) -> int:
    """Bytes of all that is unpacked, and again of what does not share its content with that."""
    with tarfile.open(backup.path, "r:") as tar:
        sizes = {member.name: member.size for member in tar}
    copied = (each for top in (OWN, *OF_THE_CHECKOUT) for each in _part(top, backup).values())
    return backup.path.stat().st_size + sum(sizes[CONTENTS + each] for each in copied)


def _home(top: str, name: str) -> Path:
    """Some were in recipes/ and model_repository/ before they came to their kind's folder; and the
    main pipeline's recipe came from there to its models."""
    if (recipe := ROOT / "model_repository" / Path(name).name).is_file():
        return recipe
    moved = glob.escape(name if top == "recipes" else f"{top}/{name}")
    return next(ROOT.glob(f"kinds/*/{moved}"), ROOT / top / name)


def _unpack(backup: Backup, contents: Path) -> None:
    wanted = _contents(backup.index)
    with tarfile.open(backup.path, "r:") as tar:
        for member in tar:
            if member.name in wanted:
                with (contents / member.name.removeprefix(CONTENTS)).open("wb") as copy:
                    shutil.copyfileobj(_open_member(tar, member), copy)


def _settings(backup: Backup) -> str:
    if SETTINGS not in backup.index.files:
        return ""
    with tarfile.open(backup.path, "r:") as tar:
        member = tar.getmember(CONTENTS + backup.index.files[SETTINGS])
        try:
            return _open_member(tar, member).read().decode()
        except UnicodeDecodeError:
            raise _explain_damage(backup.path, f"its {SETTINGS} is no text") from None


def _own(backup: Backup) -> Path:
    """Where the settings of the backup will look for it: in the folder that the checkout has, or
    that is named now. They may be somebody else's, and name any folder."""
    here = folders.own().folder
    folder = dotenv_values(stream=io.StringIO(_settings(backup))).get(Settings.own.name)
    if not folder:
        return here
    try:
        place = (ROOT / expand(folder)).resolve()
    except (RuntimeError, ValueError):  # nobody's home; a zero
        raise _explain_damage(backup.path, f"its own folder is {folder!a}") from None
    if place not in (here, ROOT / OWN) and _part(OWN, backup):
        raise UserError(
            f"its own folder would be written to {place}, as its settings say",
            f"if that is yours: make restore FROM=… OWN={shlex.quote(folder)}",
        )
    return place


def _restore_settings(text: str) -> None:
    """Without the lines that make wrote for the other checkout. A second restore leaves aside what
    the first one found."""
    restored = _take_users(text)
    if DOTENV.exists() and _take_users(before := DOTENV.read_text()) != restored:
        files.write_private(DOTENV.with_name(".env.before"), before)
    files.write_private(DOTENV, restored)


def _take_users(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.endswith(dotenv_file.BY_MAKE))
    return "".join(f"{line}\n" for line in lines)
