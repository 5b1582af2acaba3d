"""A user's OpenVINO IR -> one with uint8 pixels in and scores out. What is put around an ONNX
network is put around this one too: OpenVINO reads it as ONNX, and the two are joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bundle_serving.openvino_engine import openvino
from scripts.base.errors import UserError
from scripts.intake import foreign, ir
from scripts.intake.foreign import MARK
from scripts.intake.reading import Reading
from scripts.intake.signature import Signature


@dataclass(frozen=True)
class OfOpenVino:
    model: Any  # what ir.outline says of it
    runnable: Any

    @classmethod
    def read(cls, path: Path, weights: Path) -> Self:
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

    def open_batch(self, facts: Signature) -> OfOpenVino:
        network = self.runnable.clone()
        try:
            (pixels,) = network.inputs
            network.reshape([-1, *list(pixels.partial_shape)[1:]])
        except RuntimeError:  # its operators fix the batch
            return self
        return OfOpenVino(self.model, network)

    def adopt(
        self, facts: Signature, how: Mapping[str, Any], reading: Reading, one_by_one: bool
    ) -> Any:
        onnx = self._wrap(foreign.adopt_graph(self.model, facts, how, reading, one_by_one), facts)
        around = openvino.Core().read_model(onnx.SerializeToString())
        network = self.runnable.clone()
        fed, answered = around.output(MARK + facts.input), network.output(facts.output)
        for taken, given in (
            (network.input(facts.input), fed),
            (around.input(MARK + facts.output), answered),
        ):
            source = given.node.input_value(0)
            for target in taken.node.output(0).get_target_inputs():
                target.replace_source_output(source)
        (result,) = (each for each in around.get_results() if "output" in each.output(0).names)
        (pixels,) = (each for each in around.get_parameters() if "input" in each.output(0).names)
        return openvino.Model([result], [pixels], "adopted")

    def _wrap(self, model: Any, facts: Signature) -> Any:
        """Without the user's own operators: it gives what they take, and takes what they give."""
        from onnx import TensorProto, helper

        graph, entry, exit_ = model.graph, MARK + facts.input, MARK + facts.output
        inside = {MARK + name for node in self.model.graph.node for name in node.output}
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


def save(network: Any, path: Path) -> None:
    openvino.save_model(network, path, compress_to_fp16=False)
