"""What `make prune` shows of it: the copies for pods, in another place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from extensions.kubernetes import pod_copies
from extensions.kubernetes.kustomization import FOR_PODS
from scripts.base.disk import Item
from scripts.repository import place
from scripts.settings.settings import Settings


def find_items(settings: Settings, days: int) -> Iterator[Item]:
    """What `make kubernetes` has named neither in the last eleven nor within so many days goes."""
    if not (elsewhere := place.find(settings)):
        return
    copies = elsewhere.open().place_beside(FOR_PODS)
    for each in pod_copies.read(copies):
        goes = not each.is_among_the_last and each.days >= days
        yield Item(
            f"{copies.prefix}{each.name} on {elsewhere.title}",
            each.size,
            each.days,
            f"{pod_copies.REVISIONS} newer ones, and older than {days} days" if goes else "",
            partial(pod_copies.remove, copies, each.name),
        )
