"""What the converters make of a model -> a graph with one input and one output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import TensorProto, helper, numpy_helper

from kinds.table.tensors import OUTPUT
from scripts.base.errors import UserError

if TYPE_CHECKING:  # which imports all of their libraries
    from kinds.table.originals import Original


def convert_graph(original: Original, name: str) -> Any:
    try:
        return original.as_onnx()
    except Exception as fault:  # of three libraries, each with its own
        message = " ".join(str(fault).split())[:200]
        raise UserError(
            f"{name} cannot be converted to ONNX: {message}",
            "serve a model of numbers alone, without parts of your own",
        ) from None


def with_one_output(model: Any, width: int) -> Any:
    """The last one: a classifier's probabilities come after its label."""
    import numpy as np

    graph = model.graph
    last = _own(graph.output[-1].name)
    for names in (each for node in graph.node for each in (node.input, node.output)):
        for place, name in enumerate(names):
            names[place] = _own(name)
    graph.initializer.append(numpy_helper.from_array(np.array([-1, width]), "bundle/shape"))
    graph.node.append(helper.make_node("Reshape", [last, "bundle/shape"], ["bundle/rows"]))
    graph.node.append(helper.make_node("Cast", ["bundle/rows"], [OUTPUT], to=TensorProto.FLOAT))
    needed: set[str] = {OUTPUT}
    kept: list[Any] = []
    for node in reversed(graph.node):
        if needed & {*node.output}:
            kept.insert(0, node)
            needed |= {*node.input}
    for field, values in (
        (graph.node, kept),
        (graph.output, [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [None, width])]),
    ):
        del field[:]
        field.extend(values)
    return model


def _own(name: str) -> str:
    """A name of the converter's that is none of ours."""
    return f"own/{name}" if name == OUTPUT else name
