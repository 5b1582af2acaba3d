"""A model of a table -> what is served of it: a graph with one input and one output; of a model of
trees also treelite's checkpoint, which Triton's FIL backend runs on a GPU.

A checkpoint, whichever library a model is of: all versions of a pipeline share one config, which
says in which format their files are. Followed: triton-inference-server/fil_backend, branch r26.06.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from kinds.table.rows import OUTPUT
from scripts.base.errors import UserError, reword_faults

if TYPE_CHECKING:  # which imports all of their libraries; unit tests do without
    from kinds.table.originals import Original

ELSEWHERE = "serve it with FLAVOUR=cpu or FLAVOUR=local"
MULTICLASS = 2  # treelite's TaskType::kMultiClf


def with_one_output(model: Any, width: int) -> Any:
    """The last one: a classifier's probabilities come after its label."""
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


def convert_forest(original: Original, name: str) -> Any:
    with reword_faults(f"{name} cannot be served on a GPU, where trees alone are", ELSEWHERE):
        forest = original.as_forest()
    header = forest.get_header_accessor()
    if header.get_field("num_target")[0] != 1:
        raise UserError(
            f"{name} gives several values, which Triton's FIL backend does not", ELSEWHERE
        )
    _give_probabilities(header)
    return forest


def _give_probabilities(header: Any) -> None:
    """As the backend does when it loads one (src/tl_model.h), so that what is checked here is what
    answers there."""
    if header.get_field("task_type")[0] == MULTICLASS:
        grown_apart = header.get_field("leaf_vector_shape")[1] == 1
        header.set_field("postprocessor", "softmax" if grown_apart else "identity_multiclass")
