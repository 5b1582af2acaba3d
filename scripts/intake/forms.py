"""A user's network in the form that it came in: run as it is, and made into one that is served."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from bundle_serving.networks import is_ir
from scripts.base.errors import UserError
from scripts.intake import foreign, ir, signature
from scripts.intake.reading import Reading
from scripts.intake.signature import Signature

# One that can be run: an ONNX file's content, or a model of OpenVINO.
Runnable: TypeAlias = Any


class Form(Protocol):
    @property
    def model(self) -> Any:
        """As ONNX, perhaps without weights."""

    @property
    def runnable(self) -> Runnable: ...

    def open_batch(self, facts: Signature) -> Form:
        """As foreign.opened."""

    def adopt(
        self, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
    ) -> Runnable:
        """As foreign.adopted."""


def read(path: Path, data: Mapping[str, Path]) -> Form:
    """With what it keeps in other files."""
    if not is_ir(path):
        return _OfOnnx(signature.whole(path, data), path.name)
    from scripts.intake.openvino_ir import OfOpenVino

    return OfOpenVino.read(path, ir.weights(path, data))


def save(network: Runnable, folder: Path) -> None:
    if isinstance(network, bytes):
        (folder / "model.onnx").write_bytes(network)
        return
    from scripts.intake import openvino_ir

    openvino_ir.save(network, folder / "model.xml")


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
