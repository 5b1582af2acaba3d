"""A user's network in the form that it came in: run as it is, and made into the one that is served,
which is the first that answers as it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from bundle_serving.agreement import Bound, compare
from bundle_serving.networks import is_ir
from scripts.artefacts.manifest import external_data
from scripts.artefacts.progress import tell
from scripts.artefacts.shapes import sides
from scripts.base.errors import UserError
from scripts.intake import foreign, ir, signature
from scripts.intake.original import Runnable, Session, rows
from scripts.intake.reading import Reading
from scripts.intake.signature import Hints, Signature

# Pictures at once, which are to get the answers of each: a graph may branch on their number.
TOGETHER = (2, 3, 4, 5, 8)


class Form(Protocol):
    @property
    def model(self) -> Any:
        """As ONNX, perhaps without weights."""

    @property
    def runnable(self) -> Runnable: ...

    def open_batch(self, facts: Signature) -> Form:
        """As foreign.open_batch."""

    def adopt(
        self, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
    ) -> Runnable:
        """As foreign.adopt_graph."""


def read(
    path: Path, data: Sequence[Path], how: Mapping[str, Any], output: str, classes: int
) -> tuple[Form, Signature]:
    """With what it keeps in other files: those beside it, or `data`. `how` pictures are prepared,
    its `output` and the number of its `classes` are what the user says."""
    beside = {each.name: each for each in data or external_data(path)}
    form: Form
    if is_ir(path):
        from scripts.intake.openvino_ir import OfOpenVino

        form = OfOpenVino.read(path, ir.weights(path, beside))
    else:
        form = _OfOnnx(signature.whole(path, beside), path.name)
    hints = Hints(sides(how["crop"]), output=output, classes=classes)
    return form, signature.signature(path, hints, form.model)


class _OfOnnx:
    def __init__(self, model: Any, name: str) -> None:
        self._name, self.model = name, model

    @property
    def runnable(self) -> bytes:
        return _serialise(self.model, self._name)

    def open_batch(self, facts: Signature) -> Form:
        return _OfOnnx(foreign.open_batch(self.model, facts), self._name)

    def adopt(
        self, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
    ) -> bytes:
        model = foreign.adopt_graph(self.model, facts, how, reading, one_by_one)
        return _serialise(model, "the converted network")


def _serialise(model: Any, name: str) -> bytes:
    try:
        content: bytes = model.SerializeToString()
        return content
    except Exception:  # protobuf's exceptions have no common base class
        raise UserError(f"{name} is larger than 2 GB", "serve a smaller network") from None


@dataclass(frozen=True)
class Conversion:
    original: Form
    facts: Signature
    how: Mapping[str, Any]
    reading: Reading
    pixels: NDArray[Any]
    reference: NDArray[Any]  # what the original says of them
    bound: Bound

    def write(self, folder: Path) -> bool:
        """Returns whether it takes several pictures at once. A fixed batch is opened, if that is
        proved; else pictures come one by one."""
        fixed = replace(self.facts, batch=self.facts.batch or 1)
        for network in self._for_several(fixed):
            if self._agrees(network):
                _save(network, folder)
                return True
        tell("  it takes pictures one by one")
        _save(self._adopt(self.original, fixed, one_by_one=True), folder)
        return False

    def _for_several(self, fixed: Signature) -> Iterator[Runnable]:
        """A file may also say any batch, and compute one."""
        if self.facts.batch is None:
            yield self._adopt(self.original, self.facts)
        yield self._adopt(self.original.open_batch(fixed), fixed)

    def _adopt(self, form: Form, facts: Signature, one_by_one: bool = False) -> Runnable:
        return form.adopt(facts, self.how, self.reading, one_by_one)

    def _agrees(self, network: Runnable) -> bool:
        try:
            asked = Session(network, "the converted network")
            return all(self._agree(asked, count) for count in TOGETHER)
        except UserError:
            return False

    def _agree(self, asked: Session, count: int) -> bool:
        found = rows(asked, self.pixels[:count], together=True)
        known = self.reference[:count]
        if len(found) != len(known):
            return False
        return compare(known, found, self.reading.answers).within(self.bound)


def _save(network: Runnable, folder: Path) -> None:
    if isinstance(network, bytes):
        (folder / "model.onnx").write_bytes(network)
        return
    from scripts.intake import openvino_ir

    openvino_ir.save(network, folder / "model.xml")
