"""The adopted network that is served: the first that answers as the original does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bundle_serving.agreement import Bound, compare
from scripts.base.errors import UserError
from scripts.steps.foreign import adopted, opened
from scripts.steps.original import rows, serialised, session
from scripts.steps.reading import Reading
from scripts.steps.signature import Signature

# The same arithmetic on the same numbers, in a different order.
BOUND = Bound(0.001)
# Enough to see whether several pictures at once get the answers of each.
TOGETHER = 3


@dataclass(frozen=True)
class Conversion:
    model: Any
    facts: Signature
    how: Mapping[str, Any]
    reading: Reading
    pixels: NDArray[Any]
    reference: NDArray[Any]  # what the original says of them

    def network(self, model: Any, facts: Signature, one_by_one: bool) -> bytes:
        graph = adopted(model, facts, self.how, self.reading, one_by_one)
        return serialised(graph, "the converted network")

    def agrees(self, network: bytes) -> bool:
        try:
            asked = session(network, "the converted network")
            found = rows(asked, self.pixels[:TOGETHER], together=True)
        except UserError:
            return False
        known = self.reference[:TOGETHER]
        if len(found) != len(known):
            return False
        return compare(known, found, self.reading.answers).within(BOUND)


def convert(wanted: Conversion, path: Path) -> bool:
    """Writes it; returns whether it takes several pictures at once. A fixed batch is opened, if
    that is proved; else pictures come one by one."""
    for network in _for_several(wanted):
        if wanted.agrees(network):
            path.write_bytes(network)
            return True
    print("  it takes pictures one by one")
    path.write_bytes(wanted.network(wanted.model, _fixed(wanted.facts), True))
    return False


def _for_several(wanted: Conversion) -> Iterator[bytes]:
    """A file may also say any batch, and compute one."""
    if wanted.facts.batch is None:
        yield wanted.network(wanted.model, wanted.facts, False)
    fixed = _fixed(wanted.facts)
    yield wanted.network(opened(wanted.model, fixed), fixed, False)


def _fixed(facts: Signature) -> Signature:
    return replace(facts, batch=facts.batch or 1)
