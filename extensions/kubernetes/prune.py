"""What `make prune` shows of it: copies of what was live that pods read from another place, and
which of them no pod can want any more."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

from extensions.kubernetes.kustomization import FOR_PODS, MARK
from scripts.base.disk import Item
from scripts.repository import place
from scripts.repository.place import Folder
from scripts.settings.settings import Settings

# What a Deployment runs, and the ten revisions that `kubectl rollout undo` can go back to.
REVISIONS = 11


def find_items(settings: Settings, days: int) -> Iterator[Item]:
    """What `make kubernetes` has named neither in the last eleven nor within so many days goes. Of
    one without a mark, an earlier bundle's, its files have the time."""
    if not (elsewhere := place.find(settings)):
        return
    copies = elsewhere.open().place_beside(FOR_PODS)
    found = []
    for name, parts in groupby(
        sorted(copies.list_stored().items()), key=lambda item: _copy_of(item[0])
    ):
        objects = [each for _, each in parts]
        modified = max(each.modified for each in objects)
        found.append((modified, name, sum(each.size for each in objects)))
    now = datetime.now(UTC)
    for newer, (modified, name, size) in enumerate(sorted(found, reverse=True)):
        age = (now - modified).days
        goes = newer >= REVISIONS and age >= days
        yield Item(
            f"{copies.prefix}{name} on {elsewhere.title}",
            size,
            age,
            f"{REVISIONS} newer ones, and older than {days} days" if goes else "",
            partial(_remove, copies, name),
        )


def _remove(copies: Folder, name: str) -> None:
    copies.remove(f"{name}/")
    copies.remove(name + MARK)


def _copy_of(path: str) -> str:
    return path.partition("/")[0].removesuffix(MARK)
