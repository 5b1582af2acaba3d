"""The adopted network that is served: the first that answers as the original does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bundle_serving.agreement import Bound, compare
from scripts.artefacts.progress import tell
from scripts.base.errors import UserError
from scripts.intake.forms import Form, Runnable, save
from scripts.intake.original import Session, rows, session
from scripts.intake.reading import Reading
from scripts.intake.signature import Signature

# Pictures at once, which are to get the answers of each: a graph may branch on their number.
TOGETHER = (2, 3, 4, 5, 8)


@dataclass(frozen=True)
class Conversion:
    original: Form
    facts: Signature
    how: Mapping[str, Any]
    reading: Reading
    pixels: NDArray[Any]
    reference: NDArray[Any]  # what the original says of them
    bound: Bound

    def network(self, form: Form, facts: Signature, one_by_one: bool) -> Runnable:
        return form.adopt(facts, self.how, self.reading, one_by_one)

    def agrees(self, network: Runnable) -> bool:
        try:
            asked = session(network, "the converted network")
            return all(self._agree(asked, count) for count in TOGETHER)
        except UserError:
            return False

    def _agree(self, asked: Session, count: int) -> bool:
        found = rows(asked, self.pixels[:count], together=True)
        known = self.reference[:count]
        if len(found) != len(known):
            return False
        return compare(known, found, self.reading.answers).within(self.bound)


def convert(wanted: Conversion, folder: Path) -> bool:
    """Writes it; returns whether it takes several pictures at once. A fixed batch is opened, if
    that is proved; else pictures come one by one."""
    for network in _for_several(wanted):
        if wanted.agrees(network):
            save(network, folder)
            return True
    tell("  it takes pictures one by one")
    save(wanted.network(wanted.original, _fix_sizes(wanted.facts), True), folder)
    return False


def _for_several(wanted: Conversion) -> Iterator[Runnable]:
    """A file may also say any batch, and compute one."""
    if wanted.facts.batch is None:
        yield wanted.network(wanted.original, wanted.facts, False)
    fixed = _fix_sizes(wanted.facts)
    yield wanted.network(wanted.original.open_batch(fixed), fixed, False)


def _fix_sizes(facts: Signature) -> Signature:
    return replace(facts, batch=facts.batch or 1)
