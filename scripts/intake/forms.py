"""A user's network in the form that it came in: run as it is, and made into the one that is served,
which is the first that answers as it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from numpy.typing import NDArray
from onnx import TensorProto, helper

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
        form = _OfOpenVino.read(path, ir.weights(path, beside))
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
class _OfOpenVino:
    """What is put around an ONNX network is put around this one too: OpenVINO reads it as ONNX, and
    the two are joined."""

    model: Any  # what ir.outline says of it
    runnable: Any

    @classmethod
    def read(cls, path: Path, weights: Path) -> Self:
        from bundle_serving.openvino_engine import openvino

        model = ir.outline(path)
        try:
            network = openvino.Core().read_model(path, weights)
        except RuntimeError as fault:
            message = " ".join(str(fault).split())[-200:]
            raise UserError(
                f"OpenVINO cannot read {path.name}: {message}", "save it again: openvino.save_model"
            ) from None
        ports = (*network.inputs, *network.outputs)
        known = {name for port in ports for name in port.names}
        for port, tensor in zip(ports, (*model.graph.input, *model.graph.output), strict=True):
            if tensor.name not in known:  # files of old have no names
                port.tensor.add_names({tensor.name})
        return cls(model, network)

    def open_batch(self, facts: Signature) -> Form:
        network = self.runnable.clone()
        try:
            (pixels,) = network.inputs
            network.reshape([-1, *list(pixels.partial_shape)[1:]])
        except RuntimeError:  # its operators fix the batch
            return self
        return _OfOpenVino(self.model, network)

    def adopt(
        self, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
    ) -> Any:
        from bundle_serving.openvino_engine import openvino

        onnx = self._wrap(foreign.adopt_graph(self.model, facts, how, reading, one_by_one), facts)
        around = openvino.Core().read_model(onnx.SerializeToString())
        network = self.runnable.clone()
        fed, answered = around.output(foreign.MARK + facts.input), network.output(facts.output)
        for taken, given in (
            (network.input(facts.input), fed),
            (around.input(foreign.MARK + facts.output), answered),
        ):
            source = given.node.input_value(0)
            for target in taken.node.output(0).get_target_inputs():
                target.replace_source_output(source)
        (result,) = (each for each in around.get_results() if "output" in each.output(0).names)
        (pixels,) = (each for each in around.get_parameters() if "input" in each.output(0).names)
        return openvino.Model([result], [pixels], "adopted")

    def _wrap(self, model: Any, facts: Signature) -> Any:
        """Without the user's own operators: it gives what they take, and takes what they give."""
        graph, entry, exit_ = model.graph, foreign.MARK + facts.input, foreign.MARK + facts.output
        inside = {foreign.MARK + name for node in self.model.graph.node for name in node.output}
        kept = [node for node in graph.node if not inside & {*node.output}]
        if not any(entry in node.output for node in kept):  # it takes levels, as they come
            kept.append(helper.make_node("Identity", ["input"], [entry]))
        del graph.node[:]
        graph.node.extend(kept)
        kind = getattr(TensorProto, facts.kind)
        graph.output.append(helper.make_tensor_value_info(entry, kind, None))
        (given,) = (each for each in self.model.graph.output if each.name == facts.output)
        shape = [None] * len(given.type.tensor_type.shape.dim)
        kind = given.type.tensor_type.elem_type
        graph.input.append(helper.make_tensor_value_info(exit_, kind, shape))
        return model


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
            for count in TOGETHER:
                found, known = rows(asked, self.pixels[:count], True), self.reference[:count]
                if len(found) != len(known):
                    return False
                if not compare(known, found, self.reading.answers).within(self.bound):
                    return False
        except UserError:
            return False
        return True


def _save(network: Runnable, folder: Path) -> None:
    if isinstance(network, bytes):
        (folder / "model.onnx").write_bytes(network)
        return
    from bundle_serving.openvino_engine import openvino

    openvino.save_model(network, folder / "model.xml", compress_to_fp16=False)
